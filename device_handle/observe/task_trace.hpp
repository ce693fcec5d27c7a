#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <typeinfo>

namespace cox {

/// One task as its device thread saw it. Times are trace_stamp()s; texts have static storage.
struct TaskRecord {
  DeviceId device;
  Stage stage;
  Outcome outcome;
  std::uint32_t thread;  ///< The device thread, by the system's number.
  std::uint32_t client;  ///< The thread that submitted it, or the one that has that thread's lane since.
  StreamId stream;
  std::uint64_t submitted;  ///< 0: not known: before anybody traced, or because stamps are no time (platform.hpp).
  std::uint64_t start;
  std::uint64_t end;
  const std::type_info* type;
  const char* operation;  ///< What name_operation() said, or nullptr.
  const char* label;      ///< What CallOptions said, or nullptr.
  const char* file;       ///< Call site, where there were CallOptions, or nullptr.
  std::uint32_t line;
};

/// Who is told about every task that a device thread takes up, on that thread. None of the three may throw, block, or
/// call a device. The tracer itself is never destroyed: a device thread may be in it after it was replaced.
struct TaskTracer {
  void (*begin)(const std::type_info& type) noexcept = nullptr;  ///< May be null.
  void (*operation)(const char* name) noexcept = nullptr;        ///< name_operation() was called. May be null.
  void (*end)(const TaskRecord& record) noexcept = nullptr;
};

namespace detail {
inline constinit std::atomic<const TaskTracer*> task_tracer{nullptr};
inline constinit std::atomic<std::uint64_t> task_tracers_set{0};
void name_traced_operation(const char* name) noexcept;
}  // namespace detail

/// From now on `tracer` is told, or nobody (nullptr). Tasks that have begun end with the former. Any thread.
inline void set_task_tracer(const TaskTracer* tracer) noexcept {
  detail::timing_requested.store(tracer != nullptr, std::memory_order_relaxed);
  detail::task_tracers_set.fetch_add(1, std::memory_order_relaxed);
  detail::task_tracer.store(tracer, std::memory_order_release);  // pairs with DeviceThread::run
}

/// Says what the task that is running on the calling device thread is for: "launch", "read". `name` has static storage.
/// The first call in a task counts, and none inside `exclusive`. Elsewhere nothing happens. Costs one relaxed load
/// while nobody traces.
inline void name_operation(const char* name) noexcept {
  if (detail::task_tracer.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    detail::name_traced_operation(name);
}

/// The clock of traces: stamps of the mailbox where they are time, else nanoseconds of the steady clock.
[[nodiscard]] inline std::uint64_t trace_stamp() noexcept {
  if (stamps_are_time()) [[likely]]
    return SystemPlatform::now_early();
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace cox
