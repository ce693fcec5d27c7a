#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/visibility.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace cox {

/// How an accepted task ended. Each ends in exactly one of these ways (law L2).
enum class Outcome : std::uint8_t {
  Completed,  ///< Ran to its end.
  Failed,     ///< Ran and threw; the exception was delivered (L5).
  Cancelled,  ///< Destroyed unrun: stop requested, or forced shutdown.
  Expired,    ///< Destroyed unrun: its deadline had passed.
};

/// What a mailbox carries: a closure that handles its own errors. Exactly one of `task()` and `task.discard(why)` is
/// called, once; then the task is destroyed. If a caller waits, `discard` reports to it that the task will not run.
template <class T>
concept Task =
    std::is_nothrow_destructible_v<T> && std::move_constructible<T> && requires(T task, CallError::Kind why) {
      { task() } noexcept -> std::same_as<Outcome>;
      { task.discard(why) } noexcept -> std::same_as<void>;
    };

/// Builds a task: `make()` returns it, and is called once, directly at the address where the task is stored. This
/// avoids further moves of closures of several hundred bytes. `make` must not submit anything itself.
template <class Make>
concept TaskMaker = std::invocable<Make&> && Task<std::invoke_result_t<Make&>>;

/// A TaskMaker that moves `task` into its storage.
template <Task T>
[[nodiscard]] auto moving(T& task) noexcept {
  return [&task] { return T(std::move(task)); };
}

inline constexpr std::size_t cache_line = 64;

/// Bytes of a task's first cell that belong to the lane; see Lane.
inline constexpr std::size_t cell_header = 24;

/// The type-erased operations of a task; one constant per closure type. Except for building the task, all code of a
/// call uses only these. `object` is the address of the task.
struct TaskOps {
  Outcome (*run)(void* object) noexcept;                        ///< Runs the task, then destroys it.
  void (*discard)(void* object, CallError::Kind why) noexcept;  ///< Discards the task, then destroys it.
  void (*destroy)(void* object) noexcept;                       ///< Destroys a task that was never queued.
  const std::type_info* type;
  std::uint32_t offset;  ///< Bytes from the start of the task's first cell to the task.
  std::uint32_t cells;   ///< Cells that the task takes; more than any lane has if its alignment exceeds a cell.
  std::uint32_t size;
  std::uint32_t alignment;
};

namespace detail {

template <Task T>
Outcome run_task(void* object) noexcept {
  T& task = *static_cast<T*>(object);
  const Outcome outcome = task();
  std::destroy_at(&task);
  return outcome;
}

template <Task T>
void discard_task(void* object, CallError::Kind reason) noexcept {
  T& task = *static_cast<T*>(object);
  task.discard(reason);
  std::destroy_at(&task);
}

template <Task T>
void destroy_task(void* object) noexcept {
  std::destroy_at(static_cast<T*>(object));
}

constexpr std::size_t round_up(std::size_t value, std::size_t step) noexcept {
  return (value + step - 1) / step * step;
}

template <Task T>
constexpr TaskOps make_task_ops() noexcept {
  const std::size_t offset = round_up(cell_header, alignof(T));
  const std::size_t cells = round_up(offset + sizeof(T), cache_line) / cache_line;
  static_assert(sizeof(T) < std::numeric_limits<std::uint32_t>::max());
  return {
      .run = &run_task<T>,
      .discard = &discard_task<T>,
      .destroy = &destroy_task<T>,
      .type = &typeid(T),
      .offset = static_cast<std::uint32_t>(offset),
      .cells = alignof(T) > cache_line ? std::numeric_limits<std::uint32_t>::max() : static_cast<std::uint32_t>(cells),
      .size = static_cast<std::uint32_t>(sizeof(T)),
      .alignment = static_cast<std::uint32_t>(alignof(T))};
}

}  // namespace detail

template <Task T>
COX_VISIBILITY_DEFAULT inline constexpr TaskOps task_ops = detail::make_task_ops<T>();

/// Builds the task that `make()` returns at `object`, which is memory for a task of its type. If `make` throws, calls
/// `undo()` and rethrows.
template <TaskMaker Make, class Undo>
void build_task(void* object, Make& make, Undo&& undo) {
  using T = std::invoke_result_t<Make&>;
  try {
    ::new (object) T(make());
  } catch (...) {
    undo();
    throw;
  }
}

}  // namespace cox
