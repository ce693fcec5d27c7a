#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cox::detail {

/// As std::shared_ptr<const T>, for what is copied on one thread and dropped on another again and again. Were each copy
/// counted where it is made, the line with the count would go back and forth between the two threads' caches; so a
/// pointer that is copied counts many at once, and keeps those that it has not given out yet in reserve. Any number of
/// threads may copy one pointer at a time.
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
      : record_(std::exchange(other.record_, nullptr)),
        reserve_(other.reserve_.exchange(0, std::memory_order_relaxed)) {}
  BulkShared& operator=(BulkShared other) noexcept {
    std::swap(record_, other.record_);
    other.reserve_.store(reserve_.exchange(other.reserve_.load(std::memory_order_relaxed), std::memory_order_relaxed),
                         std::memory_order_relaxed);
    return *this;
  }
  ~BulkShared() {
    if (record_ == nullptr) return;
    const std::uint32_t counted = 1 + reserve_.load(std::memory_order_relaxed);
    // Release: what this thread did with the object is visible to whoever deletes it; acquire, in the one that deletes.
    if (record_->references.fetch_sub(counted, std::memory_order_acq_rel) == counted) delete record_;
  }

  [[nodiscard]] const T* operator->() const noexcept { return &record_->value; }
  [[nodiscard]] const T& operator*() const noexcept { return record_->value; }
  [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }

 private:
  static constexpr std::uint32_t counted_at_once = 32;
  static constexpr std::size_t line = 64;

  // The count has a cache line of its own: it is written where the object is only read.
  struct Record {
    alignas(line) std::atomic<std::uint32_t> references{1};
    alignas(line) const T value;
  };
  explicit BulkShared(Record* record) noexcept : record_(record) {}

  [[nodiscard]] Record* give_out() const noexcept {
    if (record_ == nullptr) return nullptr;
    // Relaxed: who holds the pointer holds the object; the counts only have to add up.
    std::uint32_t left = reserve_.load(std::memory_order_relaxed);
    while (left != 0)
      if (reserve_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return record_;
    record_->references.fetch_add(counted_at_once, std::memory_order_relaxed);
    reserve_.fetch_add(counted_at_once - 1, std::memory_order_relaxed);
    return record_;
  }

  Record* record_ = nullptr;
  mutable std::atomic<std::uint32_t> reserve_{0};  // references that are counted and not given out
};

}  // namespace cox::detail
