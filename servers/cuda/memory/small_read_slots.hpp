#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/handle/return_list.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace cox::detail {

/// Page-locked memory that is reused for small reads. The thread that has waited for a read returns it with one atomic
/// operation. Allocating it from the pool and freeing it there would cost both threads the lock of the pool and its
/// cache lines: 0.8 us of 3.
class SmallReadSlot {
 public:
  SmallReadSlot(std::shared_ptr<ReturnList<SmallReadSlot>> returned, Bytes memory_of_it) noexcept
      : memory(std::move(memory_of_it)), returned_(std::move(returned)) {}

  /// Returns the slot for reuse. No read may write to it any more. Any thread.
  void release() noexcept {
    if (!returned_->push(*this)) delete this;
  }

  Bytes memory;
  SmallReadSlot* next_returned = nullptr;

 private:
  const std::shared_ptr<ReturnList<SmallReadSlot>> returned_;
};

struct ReleaseSmallReadSlot {
  void operator()(SmallReadSlot* slot) const noexcept { slot->release(); }
};

/// The slots of a device. A slot in use may outlive this object. Device thread only.
class SmallReadSlots {
 public:
  using Slot = std::unique_ptr<SmallReadSlot, ReleaseSmallReadSlot>;

  SmallReadSlots() = default;
  SmallReadSlots(const SmallReadSlots&) = delete;
  SmallReadSlots& operator=(const SmallReadSlots&) = delete;
  ~SmallReadSlots() {
    clear();
    delete_all(returned_->close());
  }

  /// An unused slot, or a new one with the memory that `allocate()` returns. Throws what `allocate()` throws, and
  /// std::bad_alloc.
  template <class Allocate>
  [[nodiscard]] Slot acquire(const Allocate& allocate) {
    if (spare_ == nullptr) spare_ = take_returned();
    if (spare_ == nullptr) return Slot(new SmallReadSlot(returned_, allocate()));
    return Slot(std::exchange(spare_, spare_->next_returned));
  }
  /// Frees the memory of all unused slots, for allocations that need it more.
  void clear() noexcept {
    delete_all(std::exchange(spare_, nullptr));
    delete_all(returned_->take_all());
  }

 private:
  static constexpr std::size_t max_spare = 64;

  [[nodiscard]] SmallReadSlot* take_returned() const noexcept {
    SmallReadSlot* const first = returned_->take_all();
    SmallReadSlot* last = first;
    for (std::size_t count = 1; last != nullptr && count < max_spare; ++count) last = last->next_returned;
    if (last != nullptr) delete_all(std::exchange(last->next_returned, nullptr));
    return first;
  }
  static void delete_all(SmallReadSlot* first) noexcept {
    while (first != nullptr) delete std::exchange(first, first->next_returned);
  }

  const std::shared_ptr<ReturnList<SmallReadSlot>> returned_ = std::make_shared<ReturnList<SmallReadSlot>>();
  SmallReadSlot* spare_ = nullptr;
};

}  // namespace cox::detail
