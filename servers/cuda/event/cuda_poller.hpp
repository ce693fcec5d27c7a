#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cox::detail {

/// An event that a CudaPoller can poll. Any thread.
class Polled {
 public:
  /// Whether the event has been reached; may report it late.
  [[nodiscard]] virtual bool poll() noexcept = 0;
  /// Blocks until the event has been reached.
  virtual void wait() noexcept = 0;

 protected:
  ~Polled() = default;
};

/// The helper thread of a device: polls events, and calls their callbacks when they are reached, for callers that do
/// not wait themselves. Starts at the first use; sleeps while there is nothing to poll (L8). Any thread.
class CudaPoller {
 public:
  explicit CudaPoller(std::string thread_name) : thread_name_(std::move(thread_name)) {}
  CudaPoller(const CudaPoller&) = delete;
  CudaPoller& operator=(const CudaPoller&) = delete;
  /// Calls stop().
  ~CudaPoller();

  /// Calls `function` on the helper thread when the event is reached, and destroys it there. Does not block, except to
  /// start the thread. After stop() it blocks until the event is reached and calls `function` on the calling thread.
  /// `function` must neither throw nor block. Throws std::bad_alloc, std::system_error.
  void add(std::shared_ptr<Polled> event, UniqueFunction<void()> function);
  /// As add(), for callbacks that are not urgent: `function` may be called a millisecond late, and the thread is not
  /// woken for each entry.
  void add_lazily(std::shared_ptr<Polled> event, UniqueFunction<void()> function);
  /// Blocks until all events have been reached, then joins the thread, unless called on it. Idempotent.
  void stop() noexcept;

 private:
  struct Entry {
    std::shared_ptr<Polled> event;
    UniqueFunction<void()> function;
    bool lazy;
  };

  void put(Entry entry, bool lazily);
  void run();
  void take_added(std::vector<Entry>& entries) noexcept;
  [[nodiscard]] static bool serve(std::vector<Entry>& entries) noexcept;

  const std::string thread_name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> added_;  // guarded by mutex_, like all members below
  bool asleep_ = false;       // waits without a time limit
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cox::detail
