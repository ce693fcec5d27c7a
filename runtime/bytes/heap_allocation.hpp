#pragma once

#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <cstddef>
#include <memory>

namespace cox::detail {

/// Pageable memory. The object is placed directly before its bytes, in the same allocation.
class HeapAllocation final : public HostAllocation {
 public:
  /// The bytes start at a multiple of this.
  static constexpr std::size_t alignment = 64;

  /// `size` bytes with undefined content. Throws IoError OutOfHostMemory.
  [[nodiscard]] static std::unique_ptr<HeapAllocation> of_size(std::size_t size);

  static void operator delete(void* memory) noexcept;

 private:
  explicit HeapAllocation(std::size_t size) noexcept;

  static void* operator new(std::size_t, void* memory) noexcept { return memory; }
  static void operator delete(void*, void*) noexcept {}
};

}  // namespace cox::detail
