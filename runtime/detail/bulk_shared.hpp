#pragma once

#include <coxswain/runtime/detail/reference_reserve.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cox::detail {

/// As std::shared_ptr<const T>, for what is copied on one thread and dropped on another again and again: see
/// ReferenceReserve. Any number of threads may copy one pointer at a time.
template <class T>
class BulkShared {
 public:
  BulkShared() noexcept = default;
  template <class... A>
  [[nodiscard]] static BulkShared make(A&&... arguments) {
    return BulkShared(new Record{.value = T(std::forward<A>(arguments)...)});
  }
  BulkShared(const BulkShared& other) noexcept : record_(other.give_out()) {}
  BulkShared(BulkShared&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), reserve_(std::move(other.reserve_)) {}
  BulkShared& operator=(BulkShared other) noexcept {
    std::swap(record_, other.record_);
    reserve_.swap(other.reserve_);
    return *this;
  }
  ~BulkShared() {
    if (record_ == nullptr) return;
    const std::uint32_t counted = 1 + reserve_.give_up();
    // Release: what this thread did with the object is visible to whoever deletes it; acquire, in the one that deletes.
    if (record_->references.fetch_sub(counted, std::memory_order_acq_rel) == counted) delete record_;
  }

  [[nodiscard]] const T* operator->() const noexcept { return &record_->value; }
  [[nodiscard]] const T& operator*() const noexcept { return record_->value; }
  [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }

 private:
  static constexpr std::size_t line = 64;

  // The count has a cache line of its own: it is written where the object is only read.
  struct Record {
    alignas(line) std::atomic<std::uint32_t> references{1};
    alignas(line) const T value;
  };
  explicit BulkShared(Record* record) noexcept : record_(record) {}

  [[nodiscard]] Record* give_out() const noexcept {
    if (record_ != nullptr) reserve_.take(record_->references);
    return record_;
  }

  Record* record_ = nullptr;
  mutable ReferenceReserve reserve_;
};

}  // namespace cox::detail
