#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <coxswain/runtime/error/io_error.hpp>

#include <new>

namespace cox {
namespace {

using detail::heap_alignment;

// The object is placed directly before its bytes, in the same allocation.
class HeapAllocation final : public HostAllocation {
 public:
  explicit HeapAllocation(std::size_t size) noexcept
      : HostAllocation(AllocationProperty::Native,
                       std::span<std::byte>(reinterpret_cast<std::byte*>(this) + heap_alignment, size)) {}

  static void* operator new(std::size_t, void* memory) noexcept { return memory; }
  static void operator delete(void*, void*) noexcept {}
  static void operator delete(void* memory) noexcept { ::operator delete(memory, std::align_val_t{heap_alignment}); }
};

static_assert(sizeof(HeapAllocation) <= heap_alignment);

}  // namespace

std::unique_ptr<HostAllocation> detail::heap_allocation(std::size_t size) {
  if (size > PTRDIFF_MAX - 2 * heap_alignment) throw IoError::out_of_host_memory(size);
  void* const memory = ::operator new(heap_alignment + size, std::align_val_t{heap_alignment}, std::nothrow);
  if (memory == nullptr) throw IoError::out_of_host_memory(size);
  return std::unique_ptr<HostAllocation>(new (memory) HeapAllocation(size));
}

std::byte* LazyAllocation::load() {
  if (std::byte* const there = data(); there != nullptr || size() == 0) return there;
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr) {
    std::unique_ptr<HostAllocation> memory = detail::heap_allocation(size());
    open()->read(0, {memory->data(), size()});
    memory_ = std::move(memory);
    publish(memory_->data());
  }
  return data();
}

}  // namespace cox
