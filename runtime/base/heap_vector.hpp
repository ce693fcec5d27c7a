#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cox {

/// A sequence that is almost always empty. It has the size of one pointer; its elements, if any, are on the heap.
template <class T>
class HeapVector {
 public:
  using value_type = T;

  HeapVector() noexcept = default;
  HeapVector(const HeapVector& other)
      : values_(other.empty() ? nullptr : std::make_unique<std::vector<T>>(*other.values_)) {}
  HeapVector(HeapVector&&) noexcept = default;
  HeapVector& operator=(HeapVector other) noexcept {
    values_.swap(other.values_);
    return *this;
  }
  ~HeapVector() = default;

  [[nodiscard]] std::size_t size() const noexcept { return values_ == nullptr ? 0 : values_->size(); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] const T* begin() const noexcept { return values_ == nullptr ? nullptr : values_->data(); }
  [[nodiscard]] const T* end() const noexcept { return begin() + size(); }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return (*values_)[i]; }

  void push_back(T value) {
    if (values_ == nullptr) values_ = std::make_unique<std::vector<T>>();
    values_->push_back(std::move(value));
  }

 private:
  std::unique_ptr<std::vector<T>> values_;
};

}  // namespace cox
