#include <coxswain/tests/support/failing_allocation.hpp>

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace cox::test {

constinit thread_local int allocations_until_failure = -1;
constinit thread_local bool stand_ins_have_memory = false;

namespace {

constinit std::atomic<long> blocks{0};

// Whether a stand-in is among the callers.
bool is_for_stand_in() noexcept {
  const int left = std::exchange(allocations_until_failure, -1);  // for what these functions allocate
  std::array<void*, 64> callers{};
  const auto count = static_cast<std::size_t>(::backtrace(callers.data(), static_cast<int>(callers.size())));
  bool found = false;
  for (std::size_t i = 0; i < count && !found; ++i) {
    Dl_info info{};
    found = ::dladdr(callers[i], &info) != 0 && std::strstr(info.dli_fname, "libcox_fake_") != nullptr;
  }
  allocations_until_failure = left;
  return found;
}

void* counted_or_null(std::size_t size, std::size_t alignment) noexcept {
  const bool counts = allocations_until_failure < 0 || !stand_ins_have_memory || !is_for_stand_in();
  if (counts && fails_now()) return nullptr;
  void* const memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory != nullptr) blocks.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* counted(std::size_t size, std::size_t alignment) {
  void* const memory = counted_or_null(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void uncounted(void* memory) noexcept {
  if (memory == nullptr) return;
  blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

long live_blocks() noexcept { return blocks.load(std::memory_order_relaxed); }

bool fails_now() noexcept { return allocations_until_failure >= 0 && allocations_until_failure-- == 0; }

}  // namespace cox::test

using namespace cox::test;

void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted_or_null(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted_or_null(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { uncounted(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { uncounted(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { uncounted(memory); }
