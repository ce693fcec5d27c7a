#include <coxswain/runtime/handle/recycled_memory.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define COX_KEEPS_NO_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COX_KEEPS_NO_MEMORY 1
#endif
#endif

namespace cox::detail {
namespace {

#if defined(COX_KEEPS_NO_MEMORY)
constexpr std::size_t kept_blocks = 0;
#else
constexpr std::size_t kept_blocks = RecycledMemory::max_cached_blocks;
#endif

}  // namespace

struct RecycledMemory::AtEndOfThread {
  ~AtEndOfThread() {
    cache_.most = 0;
    free_cached();
  }
};

constinit thread_local RecycledMemory::ThreadCache RecycledMemory::cache_{};

void RecycledMemory::begin() noexcept {
  cache_.in_use = true;
  cache_.most = kept_blocks;
  static thread_local const AtEndOfThread at_end;
}

void RecycledMemory::free_cached() noexcept {
  for (Blocks& blocks : cache_.blocks) {
    while (Block* const first = blocks.first) {
      blocks.first = first->next;
      ::operator delete(first);
    }
    blocks.count = 0;
  }
}

}  // namespace cox::detail
