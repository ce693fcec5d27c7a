#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace cox {

/// Whether an element may be moved by copying its bytes, without destroying the old object. Holds for types whose
/// moved-from objects have nothing to destroy. (P1144 proposes it for the language.) Specialise it for types that are
/// moved often.
template <class T>
inline constexpr bool is_trivially_relocatable = std::is_trivially_copyable_v<T>;

/// A sequence with inline storage for `N` elements; a longer one keeps all its elements on the heap.
/// Shapes, strides and kernel arguments are short, so they are passed to the device thread without an allocation.
/// Moving invalidates iterators; a moved-from sequence is empty.
template <class T, std::size_t N>
class SmallVector {
  static_assert(N > 0);
  static_assert(std::is_nothrow_move_constructible_v<T>, "growing must not lose elements");

 public:
  using value_type = T;
  static constexpr std::size_t inline_capacity = N;

  SmallVector() noexcept = default;
  // These constructors delegate, so that the destructor runs if copying an element or allocating memory throws.
  SmallVector(std::initializer_list<T> values)
    requires std::copy_constructible<T>
      : SmallVector() {
    append(values.begin(), values.end());
  }
  template <std::input_iterator I>
  SmallVector(I first, I last) : SmallVector() {
    append(first, last);
  }
  SmallVector(const SmallVector& other)
    requires std::copy_constructible<T>
      : SmallVector() {
    append(other.begin(), other.end());
  }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other)
    requires std::copy_constructible<T>
  {
    if (this != &other) *this = SmallVector(other);
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~SmallVector() { release(); }

  /// `count` copies of `value`.
  [[nodiscard]] static SmallVector filled(std::size_t count, const T& value) {
    SmallVector result;
    result.reserve(count);
    for (std::size_t i = 0; i < count; ++i) result.push_back(value);
    return result;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] T& front() noexcept { return data_[0]; }
  [[nodiscard]] const T& front() const noexcept { return data_[0]; }
  [[nodiscard]] T& back() noexcept { return data_[size_ - 1]; }
  [[nodiscard]] const T& back() const noexcept { return data_[size_ - 1]; }

  void push_back(T value) { emplace_back(std::move(value)); }

  /// The arguments must not refer into this sequence.
  template <class... A>
  T& emplace_back(A&&... arguments) {
    if (size_ == capacity_) grow(std::size_t{capacity_} * 2);
    T* element = std::construct_at(data_ + size_, std::forward<A>(arguments)...);
    ++size_;
    return *element;
  }
  /// Appends without checking the capacity, and without an allocation. Precondition: size() < capacity().
  void unchecked_push_back(T value) noexcept { std::construct_at(data_ + size_++, std::move(value)); }
  void pop_back() noexcept { std::destroy_at(data_ + --size_); }
  void clear() noexcept {
    std::destroy_n(data_, size_);
    size_ = 0;
  }
  void reserve(std::size_t count) {
    if (count > capacity_) grow(count);
  }

  friend bool operator==(const SmallVector& a, const SmallVector& b)
    requires std::equality_comparable<T>
  {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  [[nodiscard]] T* inline_data() noexcept { return reinterpret_cast<T*>(inline_); }
  [[nodiscard]] bool on_heap() const noexcept { return data_ != reinterpret_cast<const T*>(inline_); }

  template <class I>
  void append(I first, I last) {
    for (; first != last; ++first) emplace_back(*first);
  }

  void grow(std::size_t count) {
    if (count > std::numeric_limits<std::uint32_t>::max())
      throw std::length_error("a SmallVector cannot have more than 2^32 - 1 elements");
    T* bigger = std::allocator<T>{}.allocate(count);
    relocate(data_, size_, bigger);
    if (on_heap()) std::allocator<T>{}.deallocate(data_, capacity_);
    data_ = bigger;
    capacity_ = static_cast<std::uint32_t>(count);
  }

  /// Leaves the storage empty and inline.
  void release() noexcept {
    clear();
    if (on_heap()) std::allocator<T>{}.deallocate(data_, capacity_);
    data_ = inline_data();
    capacity_ = N;
  }

  /// Precondition: this is empty and inline.
  void take(SmallVector& other) noexcept {
    if (other.on_heap()) {
      data_ = std::exchange(other.data_, other.inline_data());
      capacity_ = std::exchange(other.capacity_, N);
      size_ = std::exchange(other.size_, 0);
      return;
    }
    size_ = std::exchange(other.size_, 0);
    relocate(other.data_, size_, data_);
  }

  /// Moves elements to uninitialised memory, and destroys them where they were.
  static void relocate(T* from, std::size_t count, T* to) noexcept {
    if constexpr (is_trivially_relocatable<T>) {
      std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), count * sizeof(T));
    } else {
      std::uninitialized_move_n(from, count, to);
      std::destroy_n(from, count);
    }
  }

  alignas(T) std::byte inline_[N * sizeof(T)];
  T* data_ = inline_data();
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = N;
};

}  // namespace cox
