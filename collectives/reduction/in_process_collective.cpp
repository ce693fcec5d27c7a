#include <coxswain/collectives/reduction/in_process_collective.hpp>

#include <coxswain/collectives/reduction/rank_inputs.hpp>
#include <coxswain/collectives/reduction/reduce.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace cox {
namespace {

using detail::ElementRange;

// Results are computed in tiles that stay in the first-level cache until they are copied to the last destination. Tiles
// are small, so that memory reads and writes alternate at short intervals and overlap. Non-temporal stores were
// measured to be slower.
constexpr std::size_t tile_bytes = 4096;

void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (to != from && bytes != 0) std::memcpy(to, from, bytes);
}

// All operations except transfers produce blocks of `count` elements. Each block is copied from one rank, or reduced
// from all, and written to one rank or to all.
struct ResultBlock {
  std::size_t source_rank;   // if it is not reduced from all
  std::size_t source_first;  // elements
  ElementRange destination_ranks;
  std::size_t destination_first;  // elements
};

std::size_t blocks_of(CollectiveOperation operation, std::size_t ranks) noexcept {
  switch (operation) {
    case CollectiveOperation::AllGather:
    case CollectiveOperation::ReduceScatter: return ranks;
    case CollectiveOperation::AllToAll: return ranks * ranks;
    default: return 1;
  }
}

ResultBlock block_of(const CollectiveRequest& request, std::size_t ranks, std::size_t block) noexcept {
  const std::size_t count = request.count;
  switch (request.operation) {
    case CollectiveOperation::Reduce: return {0, 0, {request.root, 1}, 0};
    case CollectiveOperation::AllGather: return {block, 0, {0, ranks}, block * count};
    case CollectiveOperation::ReduceScatter: return {0, block * count, {block, 1}, 0};
    case CollectiveOperation::AllToAll: {
      const std::size_t from = block % ranks;
      const std::size_t to = block / ranks;
      return {from, to * count, {to, 1}, from * count};
    }
    default: return {request.root, 0, {0, ranks}, 0};  // AllReduce, Broadcast
  }
}

class BlockShare {
 public:
  BlockShare(const CollectiveRequest& request, std::span<const RankBuffers> ranks) noexcept
      : request_(request), ranks_(ranks), size_(element_size(request.element_type)) {}

  // Divides the blocks into shares as if they were one contiguous range.
  void run(std::size_t share, std::size_t shares) noexcept {
    const std::size_t blocks = blocks_of(request_.operation, ranks_.size());
    ElementRange range = detail::part_of(blocks * request_.count, share, shares);
    while (range.count != 0) {
      const std::size_t first = range.first % request_.count;
      const std::size_t count = std::min(range.count, request_.count - first);
      make(block_of(request_, ranks_.size(), range.first / request_.count), {first, count});
      range = {range.first + count, range.count - count};
    }
  }

 private:
  void make(const ResultBlock& block, ElementRange range) noexcept {
    const auto receivers = ranks_.subspan(block.destination_ranks.first, block.destination_ranks.count);
    if (std::ranges::all_of(receivers, [](const RankBuffers& rank) { return rank.destination == nullptr; })) return;
    const std::size_t tile = tile_bytes / size_;
    const bool reduces = facts_of(request_.operation).reduces;
    for (std::size_t at = 0; at < range.count; at += tile) {
      const ElementRange elements{range.first + at, std::min(tile, range.count - at)};
      if (reduces)
        give(block, elements, reduced({block.source_first + elements.first, elements.count}));
      else
        give(block, elements, ranks_[block.source_rank].source + (block.source_first + elements.first) * size_);
    }
  }

  // Reads all sources of the tile before any destination is written, which makes in-place reduction correct.
  const std::byte* reduced(ElementRange range) noexcept {
    const detail::RankInputs contributions(&ranks_.front().source, ranks_.size(), sizeof(RankBuffers));
    detail::reduce_range(request_.element_type, request_.reduce_operation, contributions, range, tile_.data());
    return tile_.data();
  }

  void give(const ResultBlock& block, ElementRange elements, const std::byte* made) const noexcept {
    const std::size_t offset = (block.destination_first + elements.first) * size_;
    for (const RankBuffers& rank : ranks_.subspan(block.destination_ranks.first, block.destination_ranks.count))
      if (rank.destination != nullptr) copy(rank.destination + offset, made, elements.count * size_);
  }

  const CollectiveRequest& request_;
  std::span<const RankBuffers> ranks_;
  std::size_t size_;
  alignas(64) std::array<std::byte, tile_bytes> tile_;
};

// Iterates over the rows of one side of a transfer.
class Rows {
 public:
  Rows(const RankBuffers& buffers, std::size_t all_bytes, std::size_t first_byte) noexcept
      : row_bytes_(buffers.row_bytes == 0 ? all_bytes : buffers.row_bytes),
        gap_(buffers.pitch == 0 ? 0 : buffers.pitch - row_bytes_),
        offset_(first_byte / row_bytes_ * (row_bytes_ + gap_) + first_byte % row_bytes_),
        left_(row_bytes_ - first_byte % row_bytes_) {}

  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::size_t left_in_row() const noexcept { return left_; }
  void advance(std::size_t bytes) noexcept {  // at most left_in_row()
    offset_ += bytes;
    left_ -= bytes;
    if (left_ != 0) return;
    offset_ += gap_;
    left_ = row_bytes_;
  }

 private:
  std::size_t row_bytes_;
  std::size_t gap_;
  std::size_t offset_;
  std::size_t left_;
};

void transfer(const CollectiveRequest& request, const RankBuffers& sender, const RankBuffers& receiver,
              std::size_t share, std::size_t shares) noexcept {
  const std::size_t size = element_size(request.element_type);
  const ElementRange range = detail::part_of(request.count, share, shares);
  if (range.count == 0 || receiver.destination == nullptr) return;
  Rows from(sender, request.count * size, range.first * size);
  Rows to(receiver, request.count * size, range.first * size);
  for (std::size_t left = range.count * size; left != 0;) {
    const std::size_t bytes = std::min({left, from.left_in_row(), to.left_in_row()});
    copy(receiver.destination + to.offset(), sender.source + from.offset(), bytes);
    from.advance(bytes);
    to.advance(bytes);
    left -= bytes;
  }
}

}  // namespace

void run_share(const CollectiveRequest& request, std::span<const RankBuffers> ranks, std::size_t share,
               std::size_t shares) noexcept {
  if (!facts_of(request.operation).has_elements) return;
  if (is_transfer(request.operation))
    transfer(request, ranks[0], ranks[1], share, shares);
  else
    BlockShare(request, ranks).run(share, shares);
}

}  // namespace cox
