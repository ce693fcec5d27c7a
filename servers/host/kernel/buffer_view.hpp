#pragma once

#include <coxswain/runtime/error/launch_error.hpp>

#include <cstddef>
#include <string>

namespace cox {

/// The elements of one buffer, inside a kernel. In checked mode operator[] throws LaunchError OutOfBounds beyond the
/// end, which fails the launch; unchecked it is a plain access. T is const for a view that only reads.
template <class T>
class BufferView {
 public:
  BufferView(T* data, std::size_t size, std::size_t buffer, bool checked) noexcept
      : data_(data), size_(size), buffer_(buffer), checked_(checked) {}

  /// Elements.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Unchecked in every mode.
  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] T* begin() const noexcept { return data_; }
  [[nodiscard]] T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] T& operator[](std::size_t i) const {
    if (checked_ && i >= size_) throw_out_of_bounds(i);
    return data_[i];
  }

 private:
  [[noreturn]] void throw_out_of_bounds(std::size_t i) const {
    throw LaunchError(LaunchError::Kind::OutOfBounds, "element " + std::to_string(i) + " of buffer " +
                                                          std::to_string(buffer_) + " is beyond its " +
                                                          std::to_string(size_) + " elements");
  }

  T* data_;
  std::size_t size_;
  std::size_t buffer_;
  bool checked_;
};

}  // namespace cox
