#pragma once

#include <coxswain/servers/host/kernel/kernel_context.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace train {

/// The arguments of a host kernel. Buffers and scalars are numbered from 0, each kind for itself. A buffer that is too
/// small for the shape that the scalars describe fails the launch.
class Arguments {
 public:
  explicit Arguments(const cox::KernelContext& context) : context_(context) {}

  /// Scalar `i`, a std::uint32_t.
  [[nodiscard]] std::size_t size(std::size_t i) const { return context_.scalar<std::uint32_t>(i); }
  [[nodiscard]] bool flag(std::size_t i) const { return size(i) != 0; }
  [[nodiscard]] float number(std::size_t i) const { return context_.scalar<float>(i); }

  /// Buffer `i`, which the kernel only reads, with at least `count` elements.
  [[nodiscard]] const float* in(std::size_t i, std::size_t count) const { return data<const float>(i, count); }
  [[nodiscard]] const std::int32_t* tokens(std::size_t i, std::size_t count) const {
    return data<const std::int32_t>(i, count);
  }
  /// Buffer `i`, which the kernel writes.
  [[nodiscard]] float* out(std::size_t i, std::size_t count) const { return data<float>(i, count); }

 private:
  template <class T>
  [[nodiscard]] T* data(std::size_t i, std::size_t count) const {
    const auto buffer = context_.buffer<T>(i);
    if (buffer.size() < count)
      throw std::length_error("buffer " + std::to_string(i) + " has " + std::to_string(buffer.size()) +
                              " elements, but the shape needs " + std::to_string(count));
    return buffer.data();
  }

  const cox::KernelContext& context_;
};

}  // namespace train
