#include <coxswain/tests/fuzz/collective_model.hpp>

#include <coxswain/tests/collectives/reduce_by_hand.hpp>

#include <algorithm>
#include <cstring>

namespace cox::fuzz {

using enum CollectiveOperation;

std::string RankOperation::text() const {
  const CollectiveOperationFacts& facts = facts_of(operation);
  std::string text(facts.name);
  if (facts.has_elements) text += " of " + std::to_string(count) + " " + std::string(to_string(type));
  if (facts.reduces) text += " by " + std::string(to_string(reduce));
  if (facts.rooted) text += ", root rank " + std::to_string(root);
  if (in_place) text += ", in place";
  return text;
}

bool RankOperation::uses(const BufferPtr& buffer) const noexcept {
  const auto is_that = [&](const Window& window) { return window.buffer == buffer; };
  return std::ranges::any_of(sources, is_that) || std::ranges::any_of(destinations, is_that);
}

void RankOperation::add_to(CollectiveGroup& group, std::size_t rank, DeviceId root_device) const {
  if (operation == Barrier) return group.barrier();
  const Handle source = sources[rank].handle();
  const Handle destination = destinations[rank].handle();
  switch (operation) {
    case AllReduce: return group.all_reduce(source, destination, type, reduce);
    case Reduce: return group.reduce(source, destination, type, reduce, root_device);
    case Broadcast: return group.broadcast(source, destination, type, root_device);
    case AllGather: return group.all_gather(source, destination, type);
    case ReduceScatter: return group.reduce_scatter(source, destination, type, reduce);
    default: return group.all_to_all(source, destination, type);
  }
}

// In the order of ranks, as the library promises it.
ByteVector RankOperation::reduced(const std::vector<ByteVector>& contributions) const {
  const std::size_t size = element_size(type);
  ByteVector result(contributions.front().size());
  std::vector<std::uint64_t> patterns(contributions.size());
  for (std::size_t element = 0; element < result.size() / size; ++element) {
    for (std::size_t rank = 0; rank < patterns.size(); ++rank)
      patterns[rank] = test::pattern_at(contributions[rank], size, element);
    const std::uint64_t value = test::by_hand(type, reduce, patterns);
    std::memcpy(result.data() + element * size, &value, size);
  }
  return result;
}

ByteVector RankOperation::result_of(std::size_t rank, const std::vector<ByteVector>& contributions,
                                    const ByteVector& reduction) const {
  const std::size_t block = count * element_size(type);
  const auto part_of = [&](const ByteVector& all, std::size_t part) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(part * block);
    return ByteVector(first, first + static_cast<std::ptrdiff_t>(block));
  };
  switch (operation) {
    case AllReduce:
    case Reduce: return reduction;
    case Broadcast: return contributions[root];
    case ReduceScatter: return part_of(reduction, rank);
    default: break;
  }
  ByteVector result;
  for (const ByteVector& contribution : contributions) {
    const ByteVector part = operation == AllToAll ? part_of(contribution, rank) : contribution;
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

void RankOperation::add_reads(std::vector<BufferPtr>& reads) const {
  if (count == 0) return;
  for (std::size_t rank = 0; rank < sources.size(); ++rank)
    if (operation != Broadcast || rank == root) reads.push_back(sources[rank].buffer);
}

void RankOperation::poison() const {
  if (count == 0) return;
  for (std::size_t rank = 0; rank < destinations.size(); ++rank)
    if (operation != Reduce || rank == root) destinations[rank].buffer->poison();
}

void RankOperation::apply(std::uint32_t devices) const {
  const CollectiveOperationFacts& facts = facts_of(operation);
  if (!facts.has_elements || count == 0) return;
  std::vector<ByteVector> contributions;
  bool known = true;
  std::uint32_t joint = devices;
  for (std::size_t rank = 0; rank < sources.size(); ++rank) {
    const auto bytes = sources[rank].bytes();
    contributions.emplace_back(bytes.begin(), bytes.end());
    if (operation == Broadcast && rank != root) continue;
    known = known && sources[rank].buffer->known;
    joint |= sources[rank].buffer->joint;
  }
  const ByteVector reduction = facts.reduces ? reduced(contributions) : ByteVector();
  for (std::size_t rank = 0; rank < destinations.size(); ++rank) {
    if (operation == Reduce && rank != root) continue;
    std::ranges::copy(result_of(rank, contributions, reduction), destinations[rank].bytes().begin());
    destinations[rank].written(known, joint);
  }
}

}  // namespace cox::fuzz
