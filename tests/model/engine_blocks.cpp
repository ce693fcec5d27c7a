// Blocks of memory, which are watched for use after they were freed.
#include <coxswain/tests/model/engine.hpp>

#include <algorithm>
#include <new>

namespace cox::model {
namespace {

constexpr std::uint8_t allocated_pattern = 0xCD;
constexpr std::uint8_t freed_pattern = 0xDB;

}  // namespace

void* Engine::allocate_block(std::size_t bytes, std::size_t alignment) {
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* place = std::aligned_alloc(std::max(alignment, sizeof(void*)), std::max(rounded, sizeof(void*)));
  if (place == nullptr) throw std::bad_alloc();
  std::memset(place, allocated_pattern, bytes);
  blocks_.push_back({static_cast<std::byte*>(place), bytes, false});
  if (tracing_) {
    add_name(place, "block" + std::to_string(blocks_.size()), bytes);
    if (concurrent_) record("allocates " + name_of(place));
  }
  return place;
}

void Engine::free_block(void* place) {
  if (concurrent_) point(Kind::Free, place);
  const auto block =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& candidate) { return candidate.begin == place; });
  if (tracing_ && concurrent_) record("frees " + name_of(place));
  if (block == blocks_.end() || block->freed) {
    const char* message = block == blocks_.end() ? "free of something that is not a block" : "second free of a block";
    if (concurrent_) fail(message);
    if (!failure_) failure_ = message;  // may be inside a destructor
    return;
  }
  // What the thread itself stored there before can no longer be read by anybody who is allowed to.
  if (concurrent_) {
    std::erase_if(threads_[static_cast<std::size_t>(current_)].buffer, [&](const BufferedStore& entry) {
      const auto* address = static_cast<const std::byte*>(entry.address);
      return address >= block->begin && address < block->begin + block->bytes;
    });
    update_mask(threads_[static_cast<std::size_t>(current_)]);
  }
  block->freed = any_freed_ = true;
  std::memset(block->begin, freed_pattern, block->bytes);
}

void Engine::check_blocks() {
  for (const Block& block : blocks_) {
    if (!block.freed && options_.check_leaks)
      fail("a block of " + std::to_string(block.bytes) + " bytes was never freed");
    if (block.freed && std::any_of(block.begin, block.begin + block.bytes,
                                   [](std::byte b) { return b != std::byte{freed_pattern}; })) {
      fail("a freed block was written to");
    }
  }
}

void Engine::release_blocks() {
  for (const Block& block : blocks_) std::free(block.begin);
  blocks_.clear();
  any_freed_ = false;
}

}  // namespace cox::model
