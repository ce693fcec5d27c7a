#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace cox::detail {

/// Memory of small objects that a thread makes and destroys again and again: it keeps up to 64 blocks of a size for the
/// next ones. (glibc's malloc keeps 7 for a thread; for more it takes locks that others take, too.) Any thread may give
/// back what another has taken, and has that memory then. What is kept is freed when the thread ends. Under
/// AddressSanitizer nothing is kept, so that it sees what is used after its end.
class RecycledMemory {
 public:
  static constexpr std::size_t max_size = 1024;         ///< bytes; what is larger comes from operator new
  static constexpr std::size_t max_cached_blocks = 64;  ///< blocks of a size

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
  /// Frees what this thread keeps.
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
  // Trivial to destroy: objects may be destroyed after the thread's others have been.
  struct ThreadCache {
    std::array<Blocks, max_size / step> blocks;
    std::size_t most;  // 0: this is the first use, or the thread ends
    bool in_use;       // it has been
  };
  struct AtEndOfThread;

  [[nodiscard]] static ThreadCache& thread_cache() noexcept {
    if (!cache_.in_use) [[unlikely]]
      begin();
    return cache_;
  }
  static void begin() noexcept;

  static constinit thread_local ThreadCache cache_;
};

/// The standard's allocator over that.
template <class T>
class RecyclingAllocator {
 public:
  using value_type = T;

  RecyclingAllocator() noexcept = default;
  template <class U>  // NOLINTNEXTLINE(google-explicit-constructor): as the standard's
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

/// As std::make_shared, in such memory. Throws std::bad_alloc and what the constructor throws.
template <class T, class... A>
[[nodiscard]] std::shared_ptr<T> make_recycled(A&&... arguments) {
  return std::allocate_shared<T>(RecyclingAllocator<T>{}, std::forward<A>(arguments)...);
}

}  // namespace cox::detail
