#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <typeinfo>

namespace cox {

/// One task, as recorded by its device thread. Times are trace_stamp()s; texts have static storage.
struct TaskRecord {
  DeviceId device;
  Stage stage;
  Outcome outcome;
  std::uint32_t thread;  ///< The device thread, by the system's number.
  std::uint32_t client;  ///< The submitting thread; if it has ended, possibly the thread that reuses its lane.
  StreamId stream;
  std::uint64_t submitted;  ///< 0: unknown, because no tracer was set yet or stamps are not time (platform.hpp).
  std::uint64_t start;
  std::uint64_t end;
  const std::type_info* type;
  const char* operation;  ///< The argument of name_operation(), or nullptr.
  const char* label;      ///< CallOptions::label, or nullptr.
  const char* file;       ///< The call site if there were CallOptions, or nullptr.
  std::uint32_t line;
};

/// Callbacks for every task that a device thread runs or discards, called on that thread. They must not throw, block,
/// or call a device. The tracer must never be destroyed: a device thread may still use it after it was replaced.
struct TaskTracer {
  void (*begin)(const std::type_info& type) noexcept = nullptr;  ///< May be null.
  void (*operation)(const char* name) noexcept = nullptr;        ///< name_operation() was called. May be null.
  void (*end)(const TaskRecord& record) noexcept = nullptr;
};

namespace detail {
COX_VISIBILITY_DEFAULT inline constinit std::atomic<const TaskTracer*> task_tracer{nullptr};
COX_VISIBILITY_DEFAULT inline constinit std::atomic<std::uint64_t> task_tracers_set{0};
void name_traced_operation(const char* name) noexcept;
}  // namespace detail

/// Sets the tracer of the tasks that start from now on; nullptr: none. Tasks that have begun end with the previous
/// tracer. Any thread.
inline void set_task_tracer(const TaskTracer* tracer) noexcept {
  detail::timing_requested.store(tracer != nullptr, std::memory_order_relaxed);
  detail::task_tracers_set.fetch_add(1, std::memory_order_relaxed);
  detail::task_tracer.store(tracer, std::memory_order_release);  // pairs with TaskObserver::start
}

/// Names the operation of the task that is running on the calling device thread: "launch", "read". `name` has static
/// storage. Only the first call in a task counts. Calls inside `exclusive`, and calls on other threads, do nothing.
/// Costs one relaxed load while there is no tracer.
inline void name_operation(const char* name) noexcept {
  if (detail::task_tracer.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    detail::name_traced_operation(name);
}

/// The clock of traces: stamps of the mailbox if they are time, else nanoseconds of the steady clock.
[[nodiscard]] inline std::uint64_t trace_stamp() noexcept {
  if (stamps_are_time()) [[likely]]
    return SystemPlatform::now_early();
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace cox
