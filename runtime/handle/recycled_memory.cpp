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
constexpr std::size_t kept_blocks = RecycledMemory::most_kept;
#endif

}  // namespace

struct RecycledMemory::AtEndOfThread {
  ~AtEndOfThread() {
    kept_.most = 0;
    free_kept();
  }
};

constinit thread_local RecycledMemory::Kept RecycledMemory::kept_{};

void RecycledMemory::begin() noexcept {
  kept_.in_use = true;
  kept_.most = kept_blocks;
  static thread_local const AtEndOfThread at_end;
}

void RecycledMemory::free_kept() noexcept {
  for (Blocks& blocks : kept_.blocks) {
    while (Block* const first = blocks.first) {
      blocks.first = first->next;
      ::operator delete(first);
    }
    blocks.count = 0;
  }
}

}  // namespace cox::detail
