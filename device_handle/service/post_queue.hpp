#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace cox {

class ThreadContext;

/// How other threads (one that polls, one that copies, the threads of other devices) reach the thread of a service:
/// they post calls to it, or notify it, that it looks what has become possible. Notifications that come before they are
/// answered are one. Shared with those threads; it may outlive its service.
class PostQueue final : public std::enable_shared_from_this<PostQueue> {
 public:
  using Call = UniqueFunction<void()>;

  /// `on_notify`: what the device thread does after the calls. What it throws is a TaskError of `device`. Any thread: a
  /// service may be built before it has its device thread. Until attach(), nothing is answered.
  PostQueue(DeviceId device, std::function<void()> on_notify);
  PostQueue(const PostQueue&) = delete;
  PostQueue& operator=(const PostQueue&) = delete;

  /// Calls are made on the thread of `thread` from now on. Once; device thread. Throws std::bad_alloc.
  void attach(ThreadContext& thread);

  // ---- any thread

  /// Has the device thread make the calls and then call `on_notify`. A full queue neither blocks nor refuses it. Does
  /// not block, but for a device that is inline; and for a second at most while there is no memory. After shutdown has
  /// begun, nothing happens.
  void notify() noexcept;
  /// Calls `call` on the device thread, in the order of the posts; what it throws is a TaskError of the device. Throws
  /// std::bad_alloc.
  void post(Call call);
  /// As post() of what set_coalesced() was given, once for all calls that come before it is made. Throws nothing.
  void post_coalesced() noexcept;

  // ---- device thread

  /// What post_coalesced() calls; what it throws is a TaskError of the device.
  void set_coalesced(Call call) noexcept { coalesced_ = std::move(call); }
  /// Makes the calls that have been posted, and those that they post. Returns whether there were any. Not inside a
  /// call.
  bool run_calls() noexcept;
  /// As if notified: makes the calls, then calls `on_notify`. Returns false if that threw.
  bool dispatch() noexcept;
  /// Notifications are not answered any more; the service makes the calls by itself.
  void close() noexcept;

  /// The device thread will make the calls by itself: what it posts while this lives does not notify it. If a call is
  /// left at the end, that does.
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

  /// The task that answers a notification.
  struct DispatchPosts {
    std::shared_ptr<PostQueue> posts;
    Outcome operator()() const noexcept;
    void discard(CallError::Kind) const noexcept {}
  };

 private:
  void call(Call& function) const noexcept;

  // The queue whose calls the calling thread will make by itself.
  static inline constinit thread_local const PostQueue* suppressed_ = nullptr;

  const DeviceId device_;
  std::function<void()> on_notify_;  // device thread; empty: closed
  std::shared_ptr<ThreadContext> keep_thread_;
  std::atomic<ThreadContext*> thread_{nullptr};  // null: not attached
  std::atomic<bool> notified_{false};
  std::atomic<bool> closed_{false};
  std::atomic<bool> has_calls_{false};  // there may be calls
  std::atomic<bool> coalesced_pending_{false};
  detail::AdaptiveMutex mutex_;
  std::vector<Call> calls_;  // guarded by mutex_
  std::vector<Call> spare_;  // device thread: empty, with room
  Call coalesced_;           // device thread
};

}  // namespace cox
