#pragma once

#include <coxswain/device_handle/base/visibility.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace cox::detail {

/// A per-thread cache of memory for small objects that are created and destroyed again and again. A thread keeps up to
/// 64 free blocks of each size class for later allocations. (glibc's malloc keeps 7 per thread; beyond that it takes
/// locks that other threads take, too.) A block may be freed on another thread than it was allocated on; it is then
/// cached by the thread that frees it. A thread's cache is freed when the thread ends. Under AddressSanitizer nothing
/// is cached, so that it can detect uses after free.
class RecycledMemory {
 public:
  static constexpr std::size_t max_size = 1024;         ///< bytes; larger blocks come from operator new
  static constexpr std::size_t max_cached_blocks = 64;  ///< blocks per size class

  /// Throws std::bad_alloc.
  [[nodiscard]] static void* allocate(std::size_t bytes) {
    if (bytes <= max_size) {
      Blocks& blocks = thread_cache().blocks[size_class(bytes)];
      if (Block* const first = blocks.first) {
        blocks.first = first->next;
        --blocks.count;
        return first;
      }
      bytes = (size_class(bytes) + 1) * step;
    }
    return ::operator new(bytes);
  }
  static void deallocate(void* memory, std::size_t bytes) noexcept {
    if (bytes <= max_size) {
      ThreadCache& cache = thread_cache();
      Blocks& blocks = cache.blocks[size_class(bytes)];
      if (blocks.count < cache.most) {
        blocks.first = ::new (memory) Block{blocks.first};
        ++blocks.count;
        return;
      }
    }
    ::operator delete(memory);
  }
  /// Frees the blocks that the calling thread has cached.
  static void free_cached() noexcept;

 private:
  static constexpr std::size_t step = 16;
  [[nodiscard]] static std::size_t size_class(std::size_t bytes) noexcept { return (bytes - 1) / step; }

  struct Block {
    Block* next;
  };
  struct Blocks {
    Block* first;
    std::size_t count;
  };
  // Trivially destructible: objects may still be freed after the thread's other thread_local objects have been
  // destroyed.
  struct ThreadCache {
    std::array<Blocks, max_size / step> blocks;
    std::size_t most;  // blocks kept per size class; 0 before the first use, and when the thread ends
    bool in_use;       // set at the first use
  };
  struct AtEndOfThread;

  [[nodiscard]] static ThreadCache& thread_cache() noexcept {
    if (!cache_.in_use) [[unlikely]]
      begin();
    return cache_;
  }
  static void begin() noexcept;

  COX_VISIBILITY_DEFAULT static constinit thread_local ThreadCache cache_;
};

/// Standard allocator: single objects come from RecycledMemory, arrays from std::allocator.
template <class T>
class RecyclingAllocator {
 public:
  using value_type = T;

  RecyclingAllocator() noexcept = default;
  template <class U>  // NOLINTNEXTLINE(google-explicit-constructor): like std::allocator
  RecyclingAllocator(const RecyclingAllocator<U>&) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (count != 1) return std::allocator<T>{}.allocate(count);
    return static_cast<T*>(RecycledMemory::allocate(sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    if (count != 1) return std::allocator<T>{}.deallocate(memory, count);
    RecycledMemory::deallocate(memory, sizeof(T));
  }

  friend bool operator==(const RecyclingAllocator&, const RecyclingAllocator&) noexcept { return true; }
};

/// Like std::make_shared, but the memory comes from RecycledMemory. Throws std::bad_alloc and what the constructor
/// throws.
template <class T, class... A>
[[nodiscard]] std::shared_ptr<T> make_recycled(A&&... arguments) {
  return std::allocate_shared<T>(RecyclingAllocator<T>{}, std::forward<A>(arguments)...);
}

}  // namespace cox::detail
