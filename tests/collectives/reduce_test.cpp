#include <coxswain/tests/collectives/reduce_by_hand.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/reduction/reduce.hpp>
#include <coxswain/runtime/communication/reducible_types.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

using cox::ElementType;
using cox::ReduceOperation;
using cox::detail::ElementRange;
using cox::detail::InstructionSet;
using cox::detail::part_of;
using cox::detail::RankInputs;
using cox::detail::reduce;
using cox::detail::reduce_range;
using cox::test::all_reducible_types;
using cox::test::any_patterns;
using cox::test::by_hand;
using cox::test::Bytes;
using cox::test::near_one;
using cox::test::pattern_at;

namespace {

constexpr auto& operations = cox::test::all_reduce_operations;

std::vector<const std::byte*> pointers_to(const std::vector<Bytes>& tensors) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& tensor : tensors) pointers.push_back(tensor.data());
  return pointers;
}

Bytes reduced(ElementType type, ReduceOperation operation, const std::vector<Bytes>& contributions) {
  Bytes result(contributions.front().size());
  reduce(type, operation, pointers_to(contributions), result.size() / cox::element_size(type), result.data());
  return result;
}

// The first element that is not as by hand; `elements` if all are.
std::size_t first_wrong(ElementType type, ReduceOperation operation, const std::vector<Bytes>& contributions,
                        const Bytes& result) {
  const std::size_t size = cox::element_size(type);
  for (std::size_t element = 0; element < result.size() / size; ++element) {
    std::vector<std::uint64_t> patterns;
    for (const Bytes& contribution : contributions) patterns.push_back(pattern_at(contribution, size, element));
    if (pattern_at(result, size, element) != by_hand(type, operation, patterns)) return element;
  }
  return result.size() / size;
}

std::vector<Bytes> contributions_of(ElementType type, std::size_t ranks, std::size_t elements, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Bytes> contributions;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    contributions.push_back(any_patterns(type, elements, random));
    const Bytes more = near_one(type, elements, random);
    contributions.back().insert(contributions.back().end(), more.begin(), more.end());
  }
  return contributions;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("Every type under every operation is what it is by hand, whatever its bits") {
  constexpr std::size_t elements = 1111;  // twice that: more than a block and an odd end
  for (const ElementType type : all_reducible_types())
    for (const ReduceOperation operation : operations)
      for (const std::size_t ranks : {1U, 2U, 3U, 4U, 5U, 8U, 11U}) {
        CAPTURE(cox::to_string(type), cox::to_string(operation), ranks);
        const auto contributions = contributions_of(type, ranks, elements, 7 * ranks);
        CHECK(first_wrong(type, operation, contributions, reduced(type, operation, contributions)) == 2 * elements);
      }
}

TEST_CASE("Every instruction set makes the same bits") {
  constexpr std::size_t elements = 1111;
  for (const InstructionSet set : cox::detail::instruction_sets) {
    if (!cox::detail::can_run(set)) continue;
    for (const ElementType type : all_reducible_types())
      for (const ReduceOperation operation : operations)
        for (const std::size_t ranks : {2U, 4U, 7U}) {
          CAPTURE(cox::to_string(type), cox::to_string(operation), ranks);
          const auto contributions = contributions_of(type, ranks, elements, 3 * ranks);
          const auto pointers = pointers_to(contributions);
          Bytes result(contributions.front().size());
          reduce_range(set, type, operation, RankInputs(pointers), {0, 2 * elements}, result.data());
          CHECK(first_wrong(type, operation, contributions, result) == 2 * elements);
        }
  }
}

TEST_CASE("A range may be put where the first element is to be, and its contributions lie in larger objects") {
  struct Rank {
    std::uint64_t number;
    const std::byte* source;
    std::byte* destination;
  };
  for (const ElementType type : all_reducible_types()) {
    CAPTURE(cox::to_string(type));
    const std::size_t size = cox::element_size(type);
    const auto contributions = contributions_of(type, 5, 600, 17);
    std::vector<Rank> ranks;
    for (const Bytes& contribution : contributions) ranks.push_back({ranks.size(), contribution.data(), nullptr});
    const Bytes whole = reduced(type, ReduceOperation::Sum, contributions);
    Bytes result(333 * size);
    reduce_range(type, ReduceOperation::Sum, RankInputs(&ranks.front().source, 5, sizeof(Rank)), {100, 333},
                 result.data());
    CHECK(std::memcmp(result.data(), whole.data() + 100 * size, result.size()) == 0);
  }
}

TEST_CASE("The result may take the place of any contribution") {
  for (const ElementType type : all_reducible_types())
    for (const ReduceOperation operation : operations)
      for (const std::size_t place : {0U, 1U, 2U}) {
        CAPTURE(cox::to_string(type), cox::to_string(operation), place);
        auto contributions = contributions_of(type, 3, 1050, 3);
        const Bytes expected = reduced(type, operation, contributions);
        reduce(type, operation, pointers_to(contributions), 2100, contributions[place].data());
        CHECK((contributions[place] == expected));
      }
}

TEST_CASE("Lengths around those of steps and blocks are reduced to the end and no further") {
  for (const ElementType type : {ElementType::U8, ElementType::F16, ElementType::F32, ElementType::I64})
    for (const std::size_t elements : {0U, 1U, 63U, 64U, 65U, 1023U, 1024U, 1025U, 2047U, 2113U}) {
      CAPTURE(cox::to_string(type), elements);
      const auto contributions = contributions_of(type, 3, 1100, 5);
      const std::size_t bytes = elements * cox::element_size(type);
      Bytes result(contributions.front().size(), std::byte{0xa5});
      reduce(type, ReduceOperation::Sum, pointers_to(contributions), elements, result.data());
      const Bytes whole = reduced(type, ReduceOperation::Sum, contributions);
      CHECK(std::memcmp(result.data(), whole.data(), bytes) == 0);
      CHECK((Bytes(result.begin() + static_cast<std::ptrdiff_t>(bytes), result.end()) ==
             Bytes(result.size() - bytes, std::byte{0xa5})));
    }
}

TEST_CASE("Tensors may begin at any element") {
  for (const ElementType type : all_reducible_types()) {
    CAPTURE(cox::to_string(type));
    const std::size_t size = cox::element_size(type);
    const auto contributions = contributions_of(type, 2, 600, 9);
    const Bytes whole = reduced(type, ReduceOperation::Sum, contributions);
    const std::array shifted{contributions[0].data() + 3 * size, contributions[1].data() + 3 * size};
    Bytes result(whole.size());
    reduce(type, ReduceOperation::Sum, shifted, 1197, result.data() + size);
    CHECK(std::memcmp(result.data() + size, whole.data() + 3 * size, 1197 * size) == 0);
  }
}

TEST_CASE("Threads that each reduce a part make the bits that one thread makes") {
  constexpr std::size_t parts = 3;
  for (const ElementType type : {ElementType::F8E5M2, ElementType::BF16, ElementType::F32, ElementType::F64}) {
    CAPTURE(cox::to_string(type));
    const auto contributions = contributions_of(type, 4, 2500, 11);
    const auto pointers = pointers_to(contributions);
    Bytes result(contributions.front().size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t part = 0; part < parts; ++part)
        threads.emplace_back(
            [&, part] { reduce(type, ReduceOperation::Mean, pointers, part_of(5000, part, parts), result.data()); });
    }
    CHECK((result == reduced(type, ReduceOperation::Mean, contributions)));
  }
}

TEST_CASE("A range within a block has the bits that the whole has there") {
  const auto contributions = contributions_of(ElementType::F32, 4, 500, 13);
  const Bytes whole = reduced(ElementType::F32, ReduceOperation::Sum, contributions);
  Bytes result(whole.size());
  reduce(ElementType::F32, ReduceOperation::Sum, pointers_to(contributions), ElementRange{37, 501}, result.data());
  CHECK(std::memcmp(result.data() + 37 * 4, whole.data() + 37 * 4, 501 * 4) == 0);
  CHECK((Bytes(result.begin(), result.begin() + 37 * 4) == Bytes(37 * 4)));
}

TEST_CASE("Parts cover all elements once, in order") {
  for (const std::size_t elements : {0U, 1U, 1024U, 1025U, 5000U, 1'000'003U})
    for (const std::size_t parts : {1U, 2U, 3U, 7U}) {
      std::size_t next = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const ElementRange range = part_of(elements, part, parts);
        CHECK(range.first == next);
        CHECK(range.count <= elements / parts + 2048);
        next += range.count;
      }
      CHECK(next == elements);
    }
}

TEST_CASE("Sums are made in the order of ranks") {
  const std::vector<Bytes> contributions{bytes_of<float>({1e8F, 1.0F}), bytes_of<float>({-1e8F, 1e8F}),
                                         bytes_of<float>({1.0F, -1e8F})};
  CHECK((values_of<float>(reduced(ElementType::F32, ReduceOperation::Sum, contributions)) == std::vector{1.0F, 0.0F}));
}

TEST_CASE("A NaN of any rank makes the one NaN, and of equal values the first is taken") {
  const std::vector<Bytes> contributions{bytes_of<float>({-quiet_nan, 1.0F, 0.0F, -0.0F}),
                                         bytes_of<float>({2.0F, -quiet_nan, -0.0F, 0.0F})};
  for (const ReduceOperation operation : {ReduceOperation::Min, ReduceOperation::Max}) {
    const auto bits = values_of<std::uint32_t>(reduced(ElementType::F32, operation, contributions));
    CHECK((bits == std::vector{0x7fc00000U, 0x7fc00000U, 0U, 0x80000000U}));
  }
}

TEST_CASE("The mean of integers does not overflow and rounds towards zero") {
  constexpr auto largest = std::numeric_limits<std::uint64_t>::max();
  constexpr auto smallest = std::numeric_limits<std::int64_t>::min();
  CHECK((values_of<std::uint64_t>(reduced(ElementType::U64, ReduceOperation::Mean,
                                          {bytes_of<std::uint64_t>({largest}),
                                           bytes_of<std::uint64_t>({largest - 1})})) == std::vector{largest - 1}));
  CHECK((values_of<std::int64_t>(
             reduced(ElementType::I64, ReduceOperation::Mean,
                     {bytes_of<std::int64_t>({smallest, -2}), bytes_of<std::int64_t>({smallest, -1})})) ==
         std::vector<std::int64_t>{smallest, -1}));
}

TEST_CASE("Narrow floats are rounded once, and saturate if they have 8 bits") {
  // 2048 + 1 + 1 in f16: one by one both ones would be lost.
  const std::vector<Bytes> halves{bytes_of<std::uint16_t>({0x6800}), bytes_of<std::uint16_t>({0x3c00}),
                                  bytes_of<std::uint16_t>({0x3c00})};
  CHECK((values_of<std::uint16_t>(reduced(ElementType::F16, ReduceOperation::Sum, halves)) ==
         std::vector<std::uint16_t>{0x6801}));
  const std::vector<Bytes> bytes(2, Bytes{std::byte{0x7e}});
  CHECK(reduced(ElementType::F8E4M3, ReduceOperation::Sum, bytes).front() == std::byte{0x7e});
}

TEST_CASE("Bool is refused") {
  const std::vector<Bytes> contributions(2, Bytes(4));
  const auto refused = [&] { (void)reduced(ElementType::Bool, ReduceOperation::Max, contributions); };
  CHECK(cox::test::kind_of<cox::CollectiveError>(refused) == cox::CollectiveError::Kind::Validation);
}
