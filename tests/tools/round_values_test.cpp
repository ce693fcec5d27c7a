#include <coxswain/tools/cox/stress/round_values.hpp>

#include <coxswain/collectives/reduction/reduce.hpp>
#include <coxswain/runtime/communication/reducible_types.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

using namespace cox::stress;
using cox::CollectiveOperation;
using cox::ElementType;
using cox::ReduceOperation;

namespace {

RoundPart part_of(CollectiveOperation operation, std::size_t count = 6) {
  return {.operation = operation, .type = ElementType::I32, .root = 1, .count = count, .seed = 42};
}

ByteVector joined(const ByteVector& a, const ByteVector& b) {
  ByteVector all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

ByteVector block(const ByteVector& all, std::size_t index, std::size_t size) {
  return ByteVector(all.begin() + static_cast<std::ptrdiff_t>(index * size),
                    all.begin() + static_cast<std::ptrdiff_t>((index + 1) * size));
}

std::int32_t number(const ByteVector& bytes, std::size_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

}  // namespace

TEST_CASE("What is only moved comes from where the operation says") {
  const auto source = [](CollectiveOperation operation, std::size_t rank) {
    return source_of(part_of(operation), 2, rank);
  };
  using enum CollectiveOperation;
  CHECK(RoundValues(part_of(Send), 2).result_of(1) == source(Send, 0));
  CHECK(RoundValues(part_of(Send), 2).result_of(0).empty());
  CHECK(RoundValues(part_of(Broadcast), 2).result_of(0) == source(Broadcast, 1));
  CHECK(RoundValues(part_of(AllGather), 2).result_of(1) == joined(source(AllGather, 0), source(AllGather, 1)));
  CHECK(RoundValues(part_of(AllToAll), 2).result_of(1) ==
        joined(block(source(AllToAll, 0), 1, 24), block(source(AllToAll, 1), 1, 24)));
}

TEST_CASE("Ranks and seeds have sources of their own") {
  RoundPart part = part_of(CollectiveOperation::AllGather);
  const ByteVector first = source_of(part, 2, 0);
  CHECK(first == source_of(part, 2, 0));
  CHECK(first != source_of(part, 2, 1));
  part.seed = 43;
  CHECK(first != source_of(part, 2, 0));
}

TEST_CASE("A sum is the sum, and reduce_scatter gives each rank its part of it") {
  const RoundPart reduce = part_of(CollectiveOperation::AllReduce);
  const ByteVector sum = RoundValues(reduce, 3).result_of(2);
  for (std::size_t i = 0; i < 6; ++i) {
    std::uint32_t expected = 0;
    for (std::size_t rank = 0; rank < 3; ++rank)
      expected += static_cast<std::uint32_t>(number(source_of(reduce, 3, rank), i));
    REQUIRE(number(sum, i) == static_cast<std::int32_t>(expected));
  }
  RoundPart scatter = part_of(CollectiveOperation::ReduceScatter, 2);
  CHECK(RoundValues(scatter, 3).result_of(1) == block(sum, 1, 8));
}

TEST_CASE("Every reduction of every type is what the library's reduction gives, bit for bit") {
  constexpr std::size_t count = 1000;
  for (const std::size_t ranks : {2U, 3U, 7U}) {
    for (const auto& facts : cox::element_types) {
      if (!cox::can_reduce(facts.type) || facts.type == ElementType::F8E4M3 || facts.type == ElementType::F8E5M2)
        continue;
      for (std::size_t op = 0; op < cox::reduce_operation_names.size(); ++op) {
        RoundPart part = part_of(CollectiveOperation::AllReduce, count);
        part.type = facts.type;
        part.reduce = static_cast<ReduceOperation>(op);
        std::vector<ByteVector> sources;
        std::vector<const std::byte*> contributions;
        for (std::size_t rank = 0; rank < ranks; ++rank) sources.push_back(source_of(part, ranks, rank));
        for (const ByteVector& source : sources) contributions.push_back(source.data());
        ByteVector reduced(count * facts.size);
        cox::detail::reduce(part.type, part.reduce, contributions, count, reduced.data());
        CAPTURE(facts.name, ranks, to_string(part.reduce));
        REQUIRE(RoundValues(part, ranks).result_of(0) == reduced);
      }
    }
  }
}
