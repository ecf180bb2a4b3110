#include "base/read_ahead.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace pop {
namespace {
constexpr size_t kChunk = size_t(4) << 20;  // one request to the system
}

struct ReadAhead::Impl {
  std::vector<FilePart> parts;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t used = 0;
  bool stop = false;
  std::thread thread;

  // False: stopped. Waits until byte `at` is near enough to be wanted.
  bool wait_for(uint64_t at) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stop || at < used + kAhead; });
    return !stop;
  }

  void run() {
    uint64_t at = 0;
    for (const FilePart& part : parts)
      for (size_t from = 0; from < part.bytes.size(); from += kChunk) {
        if (!wait_for(at)) return;
        const size_t size = std::min(kChunk, part.bytes.size() - from);
        part.file->will_need(part.bytes.subspan(from, size));
        at += size;
      }
  }
};

ReadAhead::ReadAhead(std::vector<FilePart> parts) : impl_(std::make_unique<Impl>()) {
  impl_->parts = std::move(parts);
  try {
    impl_->thread = std::thread([this] { impl_->run(); });
  } catch (const std::system_error&) {  // no thread to be had: everything is read when it is touched
  }
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
}

void ReadAhead::advance(uint64_t bytes) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->used += bytes;
  }
  impl_->changed.notify_all();
}

}  // namespace pop
