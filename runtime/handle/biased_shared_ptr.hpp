#pragma once

#include <coxswain/runtime/handle/biased_ref_count.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cox::detail {

/// Like std::shared_ptr<const T>, for objects whose pointers are copied on one thread and destroyed on another, again
/// and again (see BiasedRefCount). Any number of threads may copy one pointer concurrently. T may be incomplete where
/// pointers are only copied, moved and destroyed.
template <class T>
class BiasedSharedPtr {
 public:
  BiasedSharedPtr() noexcept = default;
  template <class... A>
  [[nodiscard]] static BiasedSharedPtr make(A&&... arguments) {
    return BiasedSharedPtr(new Record{{.destroy = &destroy}, T(std::forward<A>(arguments)...)});
  }
  BiasedSharedPtr(const BiasedSharedPtr& other) noexcept : count_(other.add_reference()) {}
  BiasedSharedPtr(BiasedSharedPtr&& other) noexcept
      : count_(std::exchange(other.count_, nullptr)), reserve_(std::move(other.reserve_)) {}
  BiasedSharedPtr& operator=(BiasedSharedPtr other) noexcept {
    std::swap(count_, other.count_);
    reserve_.swap(other.reserve_);
    return *this;
  }
  ~BiasedSharedPtr() {
    if (count_ == nullptr) return;
    const std::uint32_t counted = 1 + reserve_.release_all();
    // Release: the accesses of this thread to the object happen before its deletion. Acquire, for the thread that
    // deletes it: pairs with this release on other threads.
    if (count_->references.fetch_sub(counted, std::memory_order_acq_rel) == counted) count_->destroy(count_);
  }

  [[nodiscard]] const T* operator->() const noexcept { return &static_cast<const Record*>(count_)->value; }
  [[nodiscard]] const T& operator*() const noexcept { return *operator->(); }
  [[nodiscard]] explicit operator bool() const noexcept { return count_ != nullptr; }

 private:
  static constexpr std::size_t line = 64;

  // The count has its own cache line, because it is written while the object is only read.
  struct Count {
    alignas(line) std::atomic<std::uint32_t> references{1};
    void (*destroy)(Count*) noexcept;
  };
  struct Record : Count {
    alignas(line) const T value;
  };
  explicit BiasedSharedPtr(Count* count) noexcept : count_(count) {}

  static void destroy(Count* count) noexcept { delete static_cast<Record*>(count); }

  [[nodiscard]] Count* add_reference() const noexcept {
    if (count_ != nullptr) reserve_.add_reference(count_->references);
    return count_;
  }

  Count* count_ = nullptr;
  mutable BiasedRefCount reserve_;
};

}  // namespace cox::detail
