#pragma once

#include <coxswain/device_handle/call_error.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace cox {

/// How an accepted task ended. Each ends in exactly one of these ways (law L2).
enum class Outcome : std::uint8_t {
  Completed,  ///< Ran to its end.
  Failed,     ///< Ran and threw; whoever is to know has been told (L5).
  Cancelled,  ///< Destroyed unrun: stop requested, or forced shutdown.
  Expired,    ///< Destroyed unrun: its deadline had passed.
};

/// What a mailbox carries: a closure that deals with its own errors. Exactly one of `task()` and `task.discard(why)` is
/// called, once, then the task is destroyed. `discard` answers whoever waits for a task that will not run.
template <class T>
concept Task =
    std::is_nothrow_destructible_v<T> && std::move_constructible<T> && requires(T task, CallError::Kind why) {
      { task() } noexcept -> std::same_as<Outcome>;
      { task.discard(why) } noexcept -> std::same_as<void>;
    };

/// Where a task comes from: `make()` returns it, and is called once, at the place where the task is to lie. Closures of
/// several hundred bytes are moved no more often than that. It must not submit anything itself.
template <class Make>
concept TaskMaker = std::invocable<Make&> && Task<std::invoke_result_t<Make&>>;

/// Makes a task of `task`, by moving it.
template <Task T>
[[nodiscard]] auto moving(T& task) noexcept {
  return [&task] { return T(std::move(task)); };
}

/// The erased half of a task; one constant per closure type. `object` is the address of the task itself.
struct TaskOps {
  Outcome (*run)(void* object) noexcept;                        ///< Runs the task, then destroys it.
  void (*discard)(void* object, CallError::Kind why) noexcept;  ///< Discards the task, then destroys it.
  std::uint32_t offset;  ///< Bytes from the start of the task's first cell to the task.
  std::uint32_t cells;   ///< Cells that the task takes.
  const std::type_info* type;
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
void discard_task(void* object, CallError::Kind why) noexcept {
  T& task = *static_cast<T*>(object);
  task.discard(why);
  std::destroy_at(&task);
}

constexpr std::size_t round_up(std::size_t value, std::size_t step) noexcept {
  return (value + step - 1) / step * step;
}

}  // namespace detail

/// Where a task of type T lies when its first cell has `header` bytes of its own before the payload.
template <Task T, std::size_t header, std::size_t cell_bytes>
inline constexpr TaskOps task_ops{
    .run = &detail::run_task<T>,
    .discard = &detail::discard_task<T>,
    .offset = static_cast<std::uint32_t>(detail::round_up(header, alignof(T))),
    .cells = static_cast<std::uint32_t>(detail::round_up(detail::round_up(header, alignof(T)) + sizeof(T), cell_bytes) /
                                        cell_bytes),
    .type = &typeid(T),
};

/// A task too large for a lane, kept in a block of `Pool` or, larger than a block or over-aligned, on the heap.
/// The device thread runs it and gives the memory back.
template <Task T, class Pool>
class BoxedTask {
  static constexpr bool pooled = sizeof(T) <= Pool::block_bytes && alignof(T) <= Pool::block_alignment;

 public:
  template <class Make>
  BoxedTask(Make& make, Pool& pool) : pool_(&pool), memory_(allocate(pool)) {
    try {
      object_ = ::new (memory_) T(make());
    } catch (...) {
      // The pool takes blocks back from the device thread only; this one goes to the heap it came from.
      deallocate_on_any_thread();
      throw;
    }
  }
  BoxedTask(BoxedTask&& other) noexcept
      : pool_(other.pool_), memory_(std::exchange(other.memory_, nullptr)), object_(other.object_) {}
  BoxedTask& operator=(BoxedTask&&) = delete;
  ~BoxedTask() {
    if (memory_ == nullptr) return;
    std::destroy_at(object_);
    deallocate_on_any_thread();
  }

  Outcome operator()() noexcept {
    const Outcome outcome = detail::run_task<T>(object_);
    deallocate();
    return outcome;
  }

  void discard(CallError::Kind why) noexcept {
    detail::discard_task<T>(object_, why);
    deallocate();
  }

 private:
  static void* allocate(Pool& pool) {
    if constexpr (pooled) {
      return pool.take();
    } else {
      return ::operator new(sizeof(T), std::align_val_t{alignof(T)});
    }
  }

  void deallocate() noexcept {
    if constexpr (pooled) {
      pool_->give_back(std::exchange(memory_, nullptr));
    } else {
      deallocate_on_any_thread();
    }
  }

  void deallocate_on_any_thread() noexcept {
    if constexpr (pooled) {
      pool_->release(std::exchange(memory_, nullptr));
    } else {
      ::operator delete(std::exchange(memory_, nullptr), std::align_val_t{alignof(T)});
    }
  }

  Pool* pool_;
  void* memory_;
  T* object_ = nullptr;
};

}  // namespace cox
