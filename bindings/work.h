// Work outside of the interpreter: the GIL released, one call of an engine at a time, Ctrl-C let in.
#pragma once
#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "engine/pop.h"

namespace pop::python {

namespace nb = nanobind;

// Asks Python for signals now and then, for RunHooks::interrupted. A handler that raises (KeyboardInterrupt) ends the work.
class Signals {
 public:
  // Without the GIL. True from when a handler has raised until rethrow().
  bool raised() {
    // Every 0.1 s: for the GIL one may wait 5 ms where another thread computes in Python.
    const auto now = std::chrono::steady_clock::now();
    if (error_ || now < next_) return error_.has_value();
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) error_.emplace();
    next_ = std::chrono::steady_clock::now() + kEvery;
    return error_.has_value();
  }
  // With the GIL: throws what a handler raised.
  void rethrow() {
    if (!error_) return;
    nb::python_error error = std::move(*error_);
    error_.reset();
    throw error;
  }

 private:
  static constexpr std::chrono::milliseconds kEvery{100};
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + kEvery;
  std::optional<nb::python_error> error_;
};

// What Engine, Session and Generation of Python share. The mutex is locked without the GIL only: who works under it may need
// the GIL to ask for signals.
struct SharedEngine {
  explicit SharedEngine(const EngineOptions& options) : engine(options) {}
  Engine engine;
  std::timed_mutex mutex;
  std::atomic<std::thread::id> owner{};  // of the mutex
};

// One call of an engine. Its turn is waited for with an ear for Ctrl-C. Throws Error: a signal handler, which runs within a call,
// asks for another of the same engine.
class Turn {
 public:
  // False in holds(): a handler has raised meanwhile.
  Turn(SharedEngine& shared, Signals& signals) : shared_(shared) {
    if (shared.owner == std::this_thread::get_id()) fail("engine: busy with the call that this signal interrupted");
    while (!holds_ && !signals.raised()) holds_ = shared.mutex.try_lock_for(std::chrono::milliseconds(50));
    if (holds_) shared.owner = std::this_thread::get_id();
  }
  ~Turn() {
    if (!holds_) return;
    shared_.owner = std::thread::id();
    shared_.mutex.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool holds() const { return holds_; }

 private:
  SharedEngine& shared_;
  bool holds_ = false;
};

// Calls `body` without the GIL while no other thread uses the engine; then throws what a signal handler raised meanwhile.
template <class Body>
auto work(SharedEngine& shared, Signals& signals, Body&& body) {
  using Result = decltype(body());
  std::optional<Result> result = [&]() -> std::optional<Result> {
    const nb::gil_scoped_release release;
    const Turn turn(shared, signals);
    return turn.holds() ? std::optional<Result>(body()) : std::nullopt;
  }();
  signals.rethrow();
  return std::move(*result);
}

// Text of a model as a str; bytes that are not UTF-8 become U+FFFD.
inline nb::str text(std::string_view bytes) {
  nb::object str = nb::steal(PyUnicode_DecodeUTF8(bytes.data(), Py_ssize_t(bytes.size()), "replace"));
  if (!str.is_valid()) nb::raise_python_error();
  return nb::borrow<nb::str>(str);
}

void bind_results(nb::module_& m);
void bind_session(nb::module_& m);  // after bind_results
void bind_engine(nb::module_& m);   // after bind_session

}  // namespace pop::python
