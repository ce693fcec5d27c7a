#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cox::detail {

/// What a CudaPoller looks at. Any thread.
class Polled {
 public:
  /// Whether it is reached; it may be told late.
  [[nodiscard]] virtual bool poll() noexcept = 0;
  /// Blocks until it is reached.
  virtual void wait() noexcept = 0;

 protected:
  ~Polled() = default;
};

/// The helper thread of a device: looks at events until they are reached and then calls whom that matters to, who was
/// not waiting itself. Started at the first use; asleep while there is nothing to look at (L8). Any thread.
class CudaPoller {
 public:
  explicit CudaPoller(std::string thread_name) : thread_name_(std::move(thread_name)) {}
  CudaPoller(const CudaPoller&) = delete;
  CudaPoller& operator=(const CudaPoller&) = delete;
  /// As stop().
  ~CudaPoller();

  /// Calls `function` on the thread when the event is reached, and destroys it there. Does not block, but for the start
  /// of the thread; after stop() it blocks for the event and calls `function` here. `function` must neither throw nor
  /// block. Throws std::bad_alloc, std::system_error.
  void add(std::shared_ptr<Polled> event, UniqueFunction<void()> function);
  /// As add(), for what need not be known at once: `function` may be called a millisecond late, and the thread is not
  /// woken for each.
  void add_lazily(std::shared_ptr<Polled> event, UniqueFunction<void()> function);
  /// Waits until all events have been reached, then joins the thread, unless called on it. Idempotent.
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
  std::vector<Entry> added_;  // guarded by mutex_, as all below
  bool asleep_ = false;       // for good, until it is woken
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cox::detail
