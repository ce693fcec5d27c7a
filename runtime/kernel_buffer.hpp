#pragma once

#include <coxswain/runtime/access.hpp>
#include <coxswain/runtime/binding.hpp>
#include <coxswain/runtime/managed_memory.hpp>
#include <coxswain/runtime/small_vector.hpp>

#include <cstddef>
#include <utility>

namespace cox {

/// A buffer that a kernel is given: the window of a Binding, and what the kernel does to it. It holds no more than the
/// device thread needs, since each line of a launch that goes from one processor to another costs.
class KernelBuffer {
 public:
  KernelBuffer(Binding binding, Access access = Access::Write) noexcept  // NOLINT(google-explicit-constructor)
      : memory_(std::move(binding.memory)),
        offset_start_(binding.offset_start),
        size_(binding.size_in_used() & most),
        is_read_only_(access == Access::Read) {}

  [[nodiscard]] const ManagedMemory& memory() const noexcept { return memory_; }
  /// Bytes left out at the front.
  [[nodiscard]] std::size_t offset_start() const noexcept { return offset_start_; }
  /// Bytes of the window.
  [[nodiscard]] std::size_t size_in_used() const noexcept { return size_; }
  [[nodiscard]] Access access() const noexcept { return is_read_only_ ? Access::Read : Access::Write; }

 private:
  static constexpr std::size_t most = ~std::size_t{0} >> 1U;

  ManagedMemory memory_;
  std::size_t offset_start_;
  std::size_t size_ : 63;
  bool is_read_only_ : 1;
};
static_assert(sizeof(KernelBuffer) == 3 * sizeof(void*));

/// A pointer with a count, and figures.
template <>
inline constexpr bool is_trivially_relocatable<KernelBuffer> = true;

}  // namespace cox
