#include <coxswain/servers/host/stream/host_threads.hpp>

#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/base/thread_name.hpp>

#include <utility>

namespace cox::detail {

HostThreads::HostThreads(const std::string& name, std::size_t count, std::shared_ptr<WaitNode> streams)
    : streams_(std::move(streams)) {
  try {
    threads_.reserve(count);
    const BlockedSignals blocked;
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([this, name] {
        name_this_thread(name);
        run();
      });
  } catch (...) {
    join();
    throw;
  }
}

HostThreads::~HostThreads() { join(); }

void HostThreads::schedule(Worker& worker) noexcept {
  const std::lock_guard lock(mutex_);
  worker.next_ = nullptr;
  (last_ != nullptr ? last_->next_ : first_) = &worker;
  last_ = &worker;
  // Notify under the lock: a thread of another device may schedule the last piece, and when that piece has run, this
  // object may be destroyed.
  changed_.notify_one();
}

void HostThreads::run() {
  const HeldNode held(*streams_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return first_ != nullptr || stopping_; });
    if (first_ == nullptr) return;
    Worker& worker = *first_;
    first_ = worker.next_;
    if (first_ == nullptr) last_ = nullptr;
    lock.unlock();
    worker.execute();
    lock.lock();
  }
}

void HostThreads::join() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace cox::detail
