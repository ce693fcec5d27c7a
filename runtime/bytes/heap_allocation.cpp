#include <coxswain/runtime/bytes/heap_allocation.hpp>

#include <coxswain/runtime/error/io_error.hpp>

#include <cstdint>
#include <new>
#include <span>

namespace cox::detail {

static_assert(sizeof(HeapAllocation) <= HeapAllocation::alignment);

HeapAllocation::HeapAllocation(std::size_t size) noexcept
    : HostAllocation(AllocationProperty::Native,
                     std::span<std::byte>(reinterpret_cast<std::byte*>(this) + alignment, size)) {}

std::unique_ptr<HeapAllocation> HeapAllocation::of_size(std::size_t size) {
  if (size > PTRDIFF_MAX - 2 * alignment) throw IoError::out_of_host_memory(size);
  void* const memory = ::operator new(alignment + size, std::align_val_t{alignment}, std::nothrow);
  if (memory == nullptr) throw IoError::out_of_host_memory(size);
  return std::unique_ptr<HeapAllocation>(new (memory) HeapAllocation(size));
}

void HeapAllocation::operator delete(void* memory) noexcept { ::operator delete(memory, std::align_val_t{alignment}); }

}  // namespace cox::detail
