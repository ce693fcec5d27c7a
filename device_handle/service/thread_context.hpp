#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace cox {

class PostQueue;

/// A callback of a service that runs once for several consecutive tasks; see ThreadContext::at_batch_end().
class BatchHook {
 public:
  /// The batch has ended. Device thread, outside tasks.
  virtual void end_batch() noexcept = 0;

 protected:
  ~BatchHook() = default;
};

/// A poll callback of a service, called while its thread finds no task; see ThreadContext::poll_while_idle(). Device
/// thread, outside tasks.
class IdlePoll {
 public:
  /// Called repeatedly. Must take less than a microsecond, because a task may arrive. Returns whether to be called
  /// again.
  virtual bool poll() noexcept = 0;
  /// Polling has ended: poll() returned false, a task has arrived, or the thread is about to sleep.
  virtual void end() noexcept = 0;

 protected:
  ~IdlePoll() = default;
};

/// The thread of a device, as its services see it. A service whose constructor takes a `ThreadContext&` is built with
/// the context of its thread. For a service that DeviceHandle::insert() moves to the thread, `attach(ThreadContext&)`
/// is called before its first task, if it has that function. The context outlives its services. Other threads use a
/// PostQueue, which a service attaches to its context.
///
/// On an inline device, tasks run on the threads of the callers, and nothing is done between tasks.
class ThreadContext : public std::enable_shared_from_this<ThreadContext> {
 public:
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;

  // ---- any thread ----------------------------------------------------------------------------------------------

  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  [[nodiscard]] Stage stage() const noexcept { return stage_; }

  // ---- the device thread, inside a task ------------------------------------------------------------------------

  /// Whether work can be deferred until after the task. False inside `exclusive`, where the running code may wait for
  /// that work, and on an inline device.
  [[nodiscard]] bool can_defer() const noexcept { return between_.has_loop && between_.exclusive_depth == 0; }

  /// Calls `hook.end_batch()` once, when the batch of tasks of the running task's type has ended: before the thread
  /// runs a task of another type, as soon as it finds no task, or before its services are destroyed. For work that is
  /// more efficient when done once for consecutive tasks. It does not delay tasks that other clients have submitted in
  /// between. A later call replaces an earlier one. Returns false, and does nothing, unless can_defer().
  bool at_batch_end(BatchHook& hook) noexcept {
    if (!can_defer()) return false;
    between_.batch = &hook;
    return true;
  }

  /// Calls `poll` repeatedly while the thread finds no task, until `poll` is done or the next task arrives. Ends an
  /// earlier poll. `poll` must stay valid until its end() is called. Returns false, and does nothing, unless
  /// can_defer().
  bool poll_while_idle(IdlePoll& poll) noexcept {
    if (!can_defer()) return false;
    end_idle_poll();
    between_.idle = &poll;
    return true;
  }

  /// From its next idle period on, the thread polls for tasks at least that long before it sleeps. For a service whose
  /// clients return after a short pause.
  void spin_at_least(std::chrono::nanoseconds limit) noexcept { between_.spin = std::max(between_.spin, limit); }

  // ---- for code that makes a device thread wait -----------------------------------------------------------------

  /// The context of the calling device thread, or nullptr.
  [[nodiscard]] static ThreadContext* current() noexcept { return current_; }

  /// Whether a service of this thread has a PostQueue. Device thread.
  [[nodiscard]] bool has_posts() const noexcept { return !posts_.empty(); }

  /// Handles the notifications of the PostQueues of this thread's services. For a task inside `exclusive` that waits
  /// for something that may itself need this thread: the task calls this repeatedly. Device thread.
  void dispatch_posts() noexcept;

 protected:
  ThreadContext(DeviceId device, Stage stage, bool has_loop, std::chrono::nanoseconds spin) noexcept
      : device_(device), stage_(stage), between_{.has_loop = has_loop, .spin = spin} {}
  virtual ~ThreadContext() = default;

  // What the loop checks between tasks. Used by the device thread alone, on cache lines that no client reads.
  struct alignas(cache_line) BetweenTasks {
    bool has_loop;
    int exclusive_depth = 0;
    std::chrono::nanoseconds spin;
    BatchHook* batch = nullptr;  // null: none is due
    IdlePoll* idle = nullptr;
  };

  void end_batch() noexcept {
    if (BatchHook* const hook = std::exchange(between_.batch, nullptr)) hook->end_batch();
  }
  void end_idle_poll() noexcept {
    if (IdlePoll* const poll = std::exchange(between_.idle, nullptr)) poll->end();
  }

  COX_VISIBILITY_DEFAULT static inline constinit thread_local ThreadContext* current_ = nullptr;

  const DeviceId device_;
  const Stage stage_;
  BetweenTasks between_;

 private:
  friend class PostQueue;

  /// Queues a task that handles a notification of `posts`, beyond the capacity of the queue. Any thread. Does not
  /// block, except on an inline device. Throws CallError Closed, Forked; std::bad_alloc.
  virtual void queue_dispatch(const std::shared_ptr<PostQueue>& posts) = 0;
  /// Handles a notification of `posts` like a task: inside `exclusive`, calls to this device that are submitted
  /// meanwhile run right after it. Device thread.
  virtual void dispatch_now(PostQueue& posts) noexcept = 0;

  std::vector<std::weak_ptr<PostQueue>> posts_;
};

}  // namespace cox
