#pragma once

#include <coxswain/runtime/launch/kernel_arguments.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

namespace train {

/// The arguments of a launch, in the words of the engine. The order of buffers and scalars is that of the kernel.
class Launch {
 public:
  /// A buffer that the kernel writes as a whole, without reading it first.
  Launch&& out(const cox::Handle& memory) && { return std::move(*this).add(memory, cox::Access::Overwrite); }
  /// A buffer that the kernel only reads.
  Launch&& in(const cox::Handle& memory) && { return std::move(*this).add(memory, cox::Access::Read); }
  /// A buffer that the kernel reads and writes, or of which it writes a part.
  Launch&& inout(const cox::Handle& memory) && { return std::move(*this).add(memory, cox::Access::Write); }
  /// inout() if `accumulate`, else out().
  Launch&& sum(const cox::Handle& memory, bool accumulate) && {
    return std::move(*this).add(memory, accumulate ? cox::Access::Write : cox::Access::Overwrite);
  }
  /// Throws std::length_error above 2^32 - 1: kernels take 32 bits.
  Launch&& size(std::size_t value) && {
    if (value > std::numeric_limits<std::uint32_t>::max())
      throw std::length_error("a tensor has 2^32 elements or more");
    arguments_ = std::move(arguments_).with_scalar(static_cast<std::uint32_t>(value));
    return std::move(*this);
  }
  Launch&& flag(bool value) && { return std::move(*this).size(value ? 1 : 0); }
  Launch&& number(float value) && {
    arguments_ = std::move(arguments_).with_scalar(value);
    return std::move(*this);
  }
  operator cox::KernelArguments() && { return std::move(arguments_); }  // NOLINT(google-explicit-constructor)

 private:
  Launch&& add(const cox::Handle& memory, cox::Access access) && {
    arguments_ = std::move(arguments_).with_buffer(memory, access);
    return std::move(*this);
  }

  cox::KernelArguments arguments_;
};

}  // namespace train
