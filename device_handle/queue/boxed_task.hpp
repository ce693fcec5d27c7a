#pragma once

#include <coxswain/device_handle/queue/task.hpp>

#include <new>
#include <typeinfo>
#include <utility>

namespace cox {

/// A task in separately allocated memory: a block of `Pool`, or heap memory if it is larger or more strictly aligned
/// than a block. The device thread runs it and frees the memory.
template <class Pool>
class COX_VISIBILITY_DEFAULT BoxedTask {
 public:
  /// Boxes the task that `make()` returns. Throws what `make` throws, and std::bad_alloc.
  template <TaskMaker Make>
  [[nodiscard]] static BoxedTask make(Make&& make, Pool& pool) {
    const TaskOps& ops = task_ops<std::invoke_result_t<Make&>>;
    void* const object = allocate(ops, pool);
    build_task(object, make, [&] { free(ops, object, pool); });
    return {ops, object, pool};
  }

  /// Takes ownership of the task of `ops` that was built at `object`, which is memory from allocate().
  BoxedTask(const TaskOps& ops, void* object, Pool& pool) noexcept : ops_(&ops), object_(object), pool_(&pool) {}
  BoxedTask(BoxedTask&& other) noexcept
      : ops_(other.ops_), object_(std::exchange(other.object_, nullptr)), pool_(other.pool_) {}
  BoxedTask& operator=(BoxedTask&&) = delete;
  ~BoxedTask() {
    if (object_ == nullptr) return;
    ops_->destroy(object_);
    free(*ops_, object_, *pool_);
  }

  Outcome operator()() noexcept {
    const Outcome outcome = ops_->run(object_);
    recycle();
    return outcome;
  }
  void discard(CallError::Kind reason) noexcept {
    ops_->discard(object_, reason);
    recycle();
  }

  [[nodiscard]] const std::type_info* type() const noexcept { return ops_->type; }

  /// Allocates memory for a task of `ops`. Throws std::bad_alloc.
  [[nodiscard]] static void* allocate(const TaskOps& ops, Pool& pool) {
    if (pooled(ops)) return pool.allocate();
    return ::operator new(ops.size, std::align_val_t{ops.alignment});
  }
  /// Frees the memory; there is no task in it. Blocks are freed to the heap, since only the device thread may recycle
  /// them.
  static void free(const TaskOps& ops, void* memory, Pool& pool) noexcept {
    if (pooled(ops)) {
      pool.free(memory);
    } else {
      ::operator delete(memory, std::align_val_t{ops.alignment});
    }
  }

 private:
  static bool pooled(const TaskOps& ops) noexcept {
    return ops.size <= Pool::block_bytes && ops.alignment <= Pool::block_alignment;
  }

  void recycle() noexcept {
    void* const memory = std::exchange(object_, nullptr);
    if (pooled(*ops_)) {
      pool_->recycle(memory);
    } else {
      free(*ops_, memory, *pool_);
    }
  }

  const TaskOps* ops_;
  void* object_;
  Pool* pool_;
};

}  // namespace cox
