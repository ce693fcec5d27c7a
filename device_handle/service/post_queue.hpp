#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace cox {

class ThreadContext;

/// The way for other threads (pollers, copy threads, threads of other devices) to reach the thread of a service: they
/// post calls to it, or notify it to check for progress. Notifications that arrive before the device thread handles
/// them are merged into one. Shared with those threads; it may outlive its service.
class PostQueue final : public std::enable_shared_from_this<PostQueue> {
 public:
  using Call = UniqueFunction<void()>;

  /// `on_notify`: called by the device thread after the posted calls. If it throws, the exception becomes a TaskError
  /// of `device`. Any thread: a service may be built before it has its device thread. Until attach(), no notification
  /// is handled.
  PostQueue(DeviceId device, std::function<void()> on_notify);
  PostQueue(const PostQueue&) = delete;
  PostQueue& operator=(const PostQueue&) = delete;

  /// Binds the queue to `thread`: from now on calls are made on that thread. Called once; device thread. Throws
  /// std::bad_alloc.
  void attach(ThreadContext& thread);

  // ---- any thread

  /// Makes the device thread run the posted calls and then call `on_notify`. Not limited by the capacity of the queue:
  /// neither waits nor fails if it is full. Does not block, except on an inline device, and for up to one second while
  /// there is no memory. Does nothing once shutdown has begun.
  void notify() noexcept;
  /// Calls `call` on the device thread, in the order of the posts. If it throws, the exception becomes a TaskError of
  /// the device. Throws std::bad_alloc.
  void post(Call call);
  /// An object whose run_posted() the device thread calls. Posting it needs no memory, so it cannot fail.
  class Posted {
   protected:
    ~Posted() = default;

   private:
    friend class PostQueue;
    /// Device thread.
    virtual void run_posted() noexcept = 0;

    std::shared_ptr<Posted> next_;
  };
  /// Calls posted->run_posted() on the device thread, in the order of the posts of such objects, before the calls that
  /// are pending then. The object must not be posted again before that.
  void post(std::shared_ptr<Posted> posted) noexcept;
  /// Posts the call that was given to set_coalesced(). All posts that arrive before that call runs are merged into one
  /// call. Does not throw.
  void post_coalesced() noexcept;

  // ---- device thread

  /// Sets the call of post_coalesced(). If it throws, the exception becomes a TaskError of the device.
  void set_coalesced(Call call) noexcept { coalesced_ = std::move(call); }
  /// Runs the posted calls, and the calls that these post. Returns whether there were any. Must not be called inside a
  /// posted call.
  bool run_calls() noexcept;
  /// Handles a notification: runs the posted calls, then calls `on_notify`. Returns false if `on_notify` threw.
  bool dispatch() noexcept;
  /// Stops the handling of notifications. The service then runs the calls itself.
  void close() noexcept;
  /// The service is destroyed: drops what is pending, and whatever is posted from now on, without running it. A posted
  /// object may own what owns this queue, so that neither would be destroyed. Call it after close().
  void end() noexcept;

  /// For a device thread that will run the calls itself: while this object exists, calls that its thread posts do not
  /// notify. If a call is left at the end, the destructor notifies.
  class HoldNotify {
   public:
    explicit HoldNotify(PostQueue& posts) noexcept;
    HoldNotify(const HoldNotify&) = delete;
    HoldNotify& operator=(const HoldNotify&) = delete;
    ~HoldNotify();

   private:
    PostQueue& posts_;
    const PostQueue* const outer_;
  };

  /// The task that handles a notification.
  struct DispatchPosts {
    std::shared_ptr<PostQueue> posts;
    Outcome operator()() const noexcept;
    void discard(CallError::Kind) const noexcept {}
  };

 private:
  void call(Call& function) const noexcept;

  // The queue for which the calling thread suppresses notifications, because it will run the calls itself.
  COX_VISIBILITY_DEFAULT static inline constinit thread_local const PostQueue* suppressed_ = nullptr;

  const DeviceId device_;
  std::function<void()> on_notify_;  // device thread; empty: closed
  std::shared_ptr<ThreadContext> keep_thread_;
  std::atomic<ThreadContext*> thread_{nullptr};  // null: not attached
  std::atomic<bool> notified_{false};
  std::atomic<bool> closed_{false};
  std::atomic<bool> has_calls_{false};  // true: there may be calls
  std::atomic<bool> coalesced_pending_{false};
  detail::AdaptiveMutex mutex_;
  bool ended_ = false;  // guarded by mutex_, like the next three
  std::vector<Call> calls_;
  std::shared_ptr<Posted> first_;  // the posted objects, a list
  Posted* last_ = nullptr;         // null: the list is empty
  std::vector<Call> spare_;        // device thread: empty, with reserved capacity
  Call coalesced_;                 // device thread
};

}  // namespace cox
