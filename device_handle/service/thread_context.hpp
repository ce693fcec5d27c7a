#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace cox {

class PostQueue;

/// What a service does once for several tasks that follow one another; see ThreadContext::at_batch_end().
class BatchHook {
 public:
  /// The batch has ended. Device thread, outside tasks.
  virtual void end_batch() noexcept = 0;

 protected:
  ~BatchHook() = default;
};

/// What a service does while its thread finds no task; see ThreadContext::poll_while_idle(). Device thread, outside
/// tasks.
class IdlePoll {
 public:
  /// Called again and again; takes less than a microsecond, as tasks may come. Returns whether to be called again.
  virtual bool poll() noexcept = 0;
  /// It is not called any more: it was done, a task has come, or the thread is about to sleep.
  virtual void end() noexcept = 0;

 protected:
  ~IdlePoll() = default;
};

/// The thread of a device, as the services see it that it owns. A service whose constructor takes a `ThreadContext&` is
/// built with that of its thread; one that DeviceHandle::insert() moves there has its `attach(ThreadContext&)` called,
/// where it has one, before its first task. The context outlives its services. What other threads need is a PostQueue,
/// which a service attaches to its context.
///
/// On an inline device, where tasks run on the threads of the callers, nothing is done between tasks.
class ThreadContext : public std::enable_shared_from_this<ThreadContext> {
 public:
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;

  // ---- any thread ----------------------------------------------------------------------------------------------

  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  [[nodiscard]] Stage stage() const noexcept { return stage_; }

  // ---- the device thread, inside a task ------------------------------------------------------------------------

  /// Whether something can be left for the time between tasks: not inside `exclusive`, where what runs may wait for it,
  /// and not on an inline device.
  [[nodiscard]] bool can_defer() const noexcept { return between_.has_loop && between_.exclusive_depth == 0; }

  /// Calls `hook.end_batch()` once, when the batch of tasks of the running one's type has ended: before the thread runs
  /// a task of another type, as soon as it finds no task, or before its services are destroyed. For what tasks that
  /// come one behind the other had better do together; it delays nothing that others have submitted in between. A later
  /// call replaces an earlier one. Returns false, and does nothing, unless can_defer().
  bool at_batch_end(BatchHook& hook) noexcept {
    if (!can_defer()) return false;
    between_.batch = &hook;
    return true;
  }

  /// Has `poll` called while the thread finds no task, until it is done or the next task comes. Ends what was polled
  /// before. `poll` stays until its end() is called. Returns false, and does nothing, unless can_defer().
  bool poll_while_idle(IdlePoll& poll) noexcept {
    if (!can_defer()) return false;
    end_idle_poll();
    between_.idle = &poll;
    return true;
  }

  /// From the next time on that it is idle, the thread looks for tasks at least that long before it sleeps. For a
  /// service whose clients come back after a while.
  void spin_at_least(std::chrono::nanoseconds limit) noexcept { between_.spin = std::max(between_.spin, limit); }

  // ---- for what makes a device thread wait ---------------------------------------------------------------------

  /// That of the device thread which is calling, or nullptr.
  [[nodiscard]] static ThreadContext* current() noexcept { return current_; }

  /// Whether a service of this thread has a PostQueue. Device thread.
  [[nodiscard]] bool has_posts() const noexcept { return !posts_.empty(); }

  /// Answers the PostQueues of this thread's services. For a task that waits, inside `exclusive`, for what may need
  /// this thread itself: calls it again and again. Device thread.
  void dispatch_posts() noexcept;

 protected:
  ThreadContext(DeviceId device, Stage stage, bool has_loop, std::chrono::nanoseconds spin) noexcept
      : device_(device), stage_(stage), between_{.has_loop = has_loop, .spin = spin} {}
  virtual ~ThreadContext() = default;

  // What the loop asks between tasks. The device thread alone, on lines that no client reads.
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

  static inline constinit thread_local ThreadContext* current_ = nullptr;

  const DeviceId device_;
  const Stage stage_;
  BetweenTasks between_;

 private:
  friend class PostQueue;

  /// Queues a task that answers `posts`, beyond the capacity of the queue. Any thread. Does not block, but on an inline
  /// device. Throws CallError Closed, Forked; std::bad_alloc.
  virtual void queue_dispatch(const std::shared_ptr<PostQueue>& posts) = 0;

  std::vector<std::weak_ptr<PostQueue>> posts_;
};

}  // namespace cox
