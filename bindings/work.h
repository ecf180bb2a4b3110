// Work outside of the interpreter: the GIL released, one call of an engine at a time, Ctrl-C let in.
#pragma once
#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

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
  std::mutex mutex;
};

// Calls `body` without the GIL while no other thread uses the engine; then throws what a signal handler raised meanwhile.
template <class Body>
auto work(SharedEngine& shared, Signals& signals, Body&& body) {
  auto result = [&] {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(shared.mutex);
    return body();
  }();
  signals.rethrow();
  return result;
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
