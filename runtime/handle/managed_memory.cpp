#include <coxswain/runtime/handle/managed_memory.hpp>

namespace cox {
namespace {

std::atomic<std::uint64_t> last_generation{0};
std::atomic<std::uint64_t> last_memory{0};

}  // namespace

std::uint64_t MemoryOwner::next_generation() noexcept {
  return last_generation.fetch_add(1, std::memory_order_relaxed) + 1;
}

MemoryView::Record::Record(const MemoryOwner& memory_owner, std::size_t bytes) noexcept
    : owner(memory_owner), id(last_memory.fetch_add(1, std::memory_order_relaxed) + 1), size(bytes) {}

}  // namespace cox
