#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/observe/running_task.hpp>
#include <coxswain/device_handle/observe/task_counters.hpp>
#include <coxswain/device_handle/observe/task_trace.hpp>
#include <coxswain/device_handle/queue/mailbox.hpp>
#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <typeinfo>
#include <utility>

namespace cox {

/// Records the tasks of a device thread: the running task, for the stall watcher; in the TaskCounters, the outcome of
/// each task and the wait and run times of some; and, for a TaskTracer, all of these of every task. Called by the
/// device thread, except running().
class TaskObserver {
 public:
  /// `timing`: whether to measure how long tasks wait and run.
  TaskObserver(DeviceId device, Stage stage, TaskCounters& counters, bool timing) noexcept
      : device_(device), stage_(stage), timing_(timing), counters_(counters) {}
  TaskObserver(const TaskObserver&) = delete;
  TaskObserver& operator=(const TaskObserver&) = delete;

  /// Called first on the device thread.
  void begin_thread() noexcept { number_ = this_thread_number(); }
  /// The thread has slept, or was about to sleep: the next task is timed.
  void on_sleep() noexcept { time_next_ = true; }

  /// The result of start(), passed to end().
  struct Start {
    bool timed;
    const TaskTracer* tracer;
    std::uint64_t stamp;
  };

  /// The thread enters a task of that type. Returns whether the previous task was of another type.
  bool enter(const std::type_info* type) noexcept {
    const bool other = running_.type() != type;
    running_.enter(type);
    return other;
  }
  /// The thread again enters work that belongs to the last task.
  void reenter() noexcept { running_.enter(running_.type()); }
  void leave() noexcept { running_.leave(); }

  /// Called after enter(), before the task runs.
  [[nodiscard]] Start start(const Mailbox::Item& item) noexcept {
    // Reading the clock costs more than everything else here. While the thread is awake, one task in
    // `tasks_per_timed_one` is timed and stands for the others.
    const bool timed = timing_ && item.submitted != 0 && (time_next_ || untimed_ + 1 >= tasks_per_timed_one) &&
                       stamps_are_time();                                                  // this may have changed
    const TaskTracer* const tracer = detail::task_tracer.load(std::memory_order_acquire);  // pairs with set_task_tracer
    std::uint64_t stamp = 0;
    if (tracer != nullptr) [[unlikely]] {
      stamp = begin_trace(item, *tracer);
    } else if (timed) {
      stamp = trace_stamp();
    }
    return {timed, tracer, stamp};
  }

  /// The task has run or was discarded; leaves the task.
  void end(const Mailbox::Item& item, Outcome outcome, const Start& start) noexcept {
    leave();
    counters_.count_outcome(outcome);
    const std::uint64_t end = start.timed || start.tracer != nullptr ? std::max(trace_stamp(), start.stamp) : 0;
    if (start.timed) {
      // Clock reads on two processors without a happens-before relation may be slightly out of order.
      counters_.record_times(start.stamp - std::min(start.stamp, item.submitted), end - start.stamp,
                             std::exchange(untimed_, 0U) + 1);
      time_next_ = false;
    } else {
      ++untimed_;
    }
    if (start.tracer != nullptr) [[unlikely]]
      end_trace(item, outcome, start.stamp, end);
  }

  /// Called inside a task that was given a label or a call site.
  void name(const char* label, const std::source_location& site) noexcept { running_.name(label, site); }

  /// Sets the operation of the running task; only the first call in a task counts. `name` has static storage. See
  /// cox::name_operation().
  void name_operation(const char* name) noexcept;

  /// Any thread.
  [[nodiscard]] const RunningTask& running() const noexcept { return running_; }

 private:
  static constexpr unsigned tasks_per_timed_one = 8;

  std::uint64_t begin_trace(const Mailbox::Item& item, const TaskTracer& tracer) noexcept;
  void end_trace(const Mailbox::Item& item, Outcome outcome, std::uint64_t start, std::uint64_t end) noexcept;

  const DeviceId device_;
  const Stage stage_;
  const bool timing_;
  bool time_next_ = true;  // the first task after the thread has slept
  unsigned untimed_ = 0;   // tasks since the last one that was timed
  TaskCounters& counters_;
  RunningTask running_;
  const TaskTracer* tracer_ = nullptr;  // of the running task; null: it is not traced
  const char* operation_ = nullptr;     // name_operation() of the running task
  std::uint64_t traced_until_ = 0;      // when the last traced task ended
  std::uint64_t tracers_seen_ = 0;
  std::uint32_t number_ = 0;  // the thread's number in the system
};

}  // namespace cox
