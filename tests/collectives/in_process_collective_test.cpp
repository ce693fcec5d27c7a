#include <coxswain/tests/collectives/reduce_by_hand.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/reduction/in_process_collective.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <latch>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

using cox::CollectiveOperation;
using cox::CollectiveRequest;
using cox::ElementType;
using cox::RankBuffers;
using cox::ReduceOperation;
using cox::test::Bytes;

namespace {

using Random = std::mt19937_64;

static_assert(noexcept(cox::run_share(CollectiveRequest{}, {}, 0, 1)));

constexpr std::array rank_counts{2U, 3U, 4U, 8U};
constexpr std::array share_counts{1U, 2U, 3U, 4U, 7U, 16U};

// ---- What ranks give: elements repeat after a prime number of them, which no tile or share is a multiple of.

class Sources {
 public:
  static constexpr std::size_t period = 1031;

  Sources(ElementType type, std::size_t ranks) : type_(type), size_(cox::element_size(type)) {
    Random random(static_cast<std::uint64_t>(type) * 16 + ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      elements_.push_back(cox::test::any_patterns(type, period / 2, random));
      const Bytes more = cox::test::near_one(type, period - period / 2, random);
      elements_.back().insert(elements_.back().end(), more.begin(), more.end());
    }
  }

  /// Elements that lie one after the other.
  struct Run {
    const std::byte* first;
    std::size_t count;
  };

  [[nodiscard]] Run from_element(std::size_t rank, std::size_t i) const { return run(elements_[rank], i); }
  [[nodiscard]] Run from_reduced(ReduceOperation operation, std::size_t i) {
    Bytes& results = reduced_[operation];
    if (results.empty()) reduce(operation, results);
    return run(results, i);
  }

 private:
  [[nodiscard]] Run run(const Bytes& elements, std::size_t i) const {
    return {elements.data() + i % period * size_, period - i % period};
  }
  void reduce(ReduceOperation operation, Bytes& results) const {
    results.resize(period * size_);
    for (std::size_t i = 0; i < period; ++i) {
      std::vector<std::uint64_t> patterns;
      for (const Bytes& elements : elements_) patterns.push_back(cox::test::pattern_at(elements, size_, i));
      const std::uint64_t result = cox::test::by_hand(type_, operation, patterns);
      std::memcpy(results.data() + i * size_, &result, size_);
    }
  }

  ElementType type_;
  std::size_t size_;
  std::vector<Bytes> elements_;
  std::map<ReduceOperation, Bytes> reduced_;
};

// ---- One operation, what its ranks' memory looks like before it, and what it must look like afterwards.

constexpr std::size_t guard = 64;

class Operation {
 public:
  Operation(const CollectiveRequest& request, std::size_t ranks, bool in_place, Sources& sources)
      : request_(request),
        ranks_(ranks),
        in_place_(in_place),
        sources_(sources),
        size_(cox::element_size(request.element_type)) {
    for (std::size_t rank = 0; rank < ranks; ++rank) add_rank(rank);
  }

  void run(std::size_t shares, bool concurrently, Random& random) const {
    std::vector<std::size_t> order(shares);
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::shuffle(order, random);
    if (!concurrently) {
      for (const std::size_t share : order) cox::run_share(request_, buffers_, share, shares);
      return;
    }
    std::latch start(static_cast<std::ptrdiff_t>(shares));
    std::vector<std::jthread> threads;
    for (const std::size_t share : order)
      threads.emplace_back([&, share] {
        start.arrive_and_wait();
        cox::run_share(request_, buffers_, share, shares);
      });
  }

  std::size_t bytes_changed_by(std::initializer_list<std::size_t> some, std::size_t shares) {
    const std::vector<Bytes> before = memory_;
    for (const std::size_t share : some) cox::run_share(request_, buffers_, share, shares);
    std::size_t changed = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (std::size_t i = 0; i < before[rank].size(); ++i) changed += memory_[rank][i] == before[rank][i] ? 0U : 1U;
    return changed;
  }

  // Whatever was not to be written is as it was, too.
  [[nodiscard]] bool is_as_expected() const {
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      if (std::memcmp(memory_[rank].data(), expected_[rank].data(), memory_[rank].size()) != 0) return false;
    return true;
  }

 private:
  void add_rank(std::size_t rank) {
    const std::size_t source = source_elements(rank);
    const std::size_t destination = destination_elements(rank);
    const std::size_t own = rank * request_.count;
    std::size_t source_at = 0;
    std::size_t destination_at = 0;
    if (!in_place_)
      destination_at = source + guard;
    else if (request_.operation == CollectiveOperation::AllGather)
      source_at = own;
    else if (request_.operation == CollectiveOperation::ReduceScatter)
      destination_at = own;

    Bytes memory((2 * guard + std::max(source_at + source, destination_at + destination)) * size_, std::byte{0xa5});
    std::byte* const begin = memory.data() + (guard + rank) * size_;
    fill(begin + source_at * size_, source, [&](std::size_t i) { return sources_.from_element(rank, i); });
    Bytes& expected = expected_.emplace_back(memory);
    fill(expected.data() + (guard + rank + destination_at) * size_, destination,
         [&](std::size_t i) { return expected_from(rank, i); });
    buffers_.push_back({.source = gives(rank) ? begin + source_at * size_ : nullptr,
                        .destination = gets(rank) ? begin + destination_at * size_ : nullptr});
    memory_.push_back(std::move(memory));
  }

  [[nodiscard]] bool gives(std::size_t rank) const {
    return request_.operation != CollectiveOperation::Broadcast || rank == request_.root;
  }
  [[nodiscard]] bool gets(std::size_t rank) const {
    return request_.operation != CollectiveOperation::Reduce || rank == request_.root;
  }
  [[nodiscard]] std::size_t source_elements(std::size_t rank) const {
    return gives(rank) ? request_.count * (facts_of(request_.operation).input_of_all_size ? ranks_ : 1) : 0;
  }
  [[nodiscard]] std::size_t destination_elements(std::size_t rank) const {
    return gets(rank) ? request_.count * (facts_of(request_.operation).output_of_all_size ? ranks_ : 1) : 0;
  }

  // In runs that do not leave a block.
  template <typename From>
  void fill(std::byte* to, std::size_t elements, const From& from) const {
    for (std::size_t i = 0; i < elements;) {
      const Sources::Run run = from(i);
      const std::size_t count = std::min({run.count, elements - i, request_.count - i % request_.count});
      std::memcpy(to + i * size_, run.first, count * size_);
      i += count;
    }
  }

  [[nodiscard]] Sources::Run expected_from(std::size_t rank, std::size_t i) const {
    const std::size_t count = request_.count;
    switch (request_.operation) {
      case CollectiveOperation::AllReduce:
      case CollectiveOperation::Reduce: return sources_.from_reduced(request_.reduce_operation, i);
      case CollectiveOperation::ReduceScatter:
        return sources_.from_reduced(request_.reduce_operation, rank * count + i);
      case CollectiveOperation::Broadcast: return sources_.from_element(request_.root, i);
      case CollectiveOperation::AllGather: return sources_.from_element(i / count, i % count);
      case CollectiveOperation::AllToAll: return sources_.from_element(i / count, rank * count + i % count);
      default: throw std::logic_error("nothing is made by this operation");
    }
  }

  CollectiveRequest request_;
  std::size_t ranks_;
  bool in_place_;
  Sources& sources_;
  std::size_t size_;
  std::vector<RankBuffers> buffers_;
  std::vector<Bytes> memory_;
  std::vector<Bytes> expected_;
};

bool may_be_in_place(CollectiveOperation operation) { return operation != CollectiveOperation::AllToAll; }

// Small ones under two numbers of shares each, which add up to all of them over the types; large ones under one.
void check_counts(CollectiveRequest request, std::size_t ranks, Sources& sources, Random& random) {
  for (const std::size_t count : {0U, 1U, 2U, 7U, 1023U, 1024U, 1025U, 100'003U}) {
    const bool large = count > 10'000;
    if (large && ranks != 4) continue;
    request.count = count;
    request.root = random() % ranks;
    for (const bool wish : {false, true}) {
      if (large && wish != (random() % 2 == 0)) continue;
      const std::size_t shares = share_counts[random() % share_counts.size()];
      const bool in_place = wish && may_be_in_place(request.operation);
      const bool concurrently = random() % 4 == 0;
      Operation operation(request, ranks, in_place, sources);
      operation.run(shares, concurrently, random);
      CAPTURE(cox::to_string(request), ranks, request.root, shares, in_place, concurrently);
      if (!operation.is_as_expected()) FAIL("memory is not as expected");
    }
  }
}

void check_reductions(CollectiveOperation operation) {
  Random random(static_cast<std::uint64_t>(operation));
  for (const ElementType type : cox::test::all_reducible_types())
    for (const std::size_t ranks : rank_counts) {
      Sources sources(type, ranks);
      for (const ReduceOperation reduce_operation : cox::test::all_reduce_operations)
        check_counts({.operation = operation, .element_type = type, .reduce_operation = reduce_operation}, ranks,
                     sources, random);
    }
  SUCCEED();
}

void check_moves(CollectiveOperation operation) {
  Random random(static_cast<std::uint64_t>(operation));
  for (const auto& type : cox::element_types)
    for (const std::size_t ranks : rank_counts) {
      Sources sources(type.type, ranks);
      check_counts({.operation = operation, .element_type = type.type}, ranks, sources, random);
    }
  SUCCEED();
}

// ---- Transfers.

struct Side {
  std::size_t row_bytes;
  std::size_t pitch;

  [[nodiscard]] std::size_t place_of(std::size_t byte) const {
    if (row_bytes == 0) return byte;
    return byte / row_bytes * (pitch == 0 ? row_bytes : pitch) + byte % row_bytes;
  }
};

Side any_side(std::size_t bytes, Random& random) {
  if (bytes == 0 || random() % 3 == 0) return {0, 0};
  const std::size_t row_bytes = random() % bytes + 1;
  return {row_bytes, random() % 3 == 0 ? 0 : row_bytes + random() % 50};
}

Bytes memory_of(const Side& side, std::size_t bytes, Random& random) {
  Bytes memory(2 * guard + (bytes == 0 ? 0 : side.place_of(bytes - 1) + 1));
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
  return memory;
}

}  // namespace

TEST_CASE("All reduce gives every rank the reduction, whatever the shares") {
  check_reductions(CollectiveOperation::AllReduce);
}
TEST_CASE("Reduce gives its root the reduction, whatever the shares") { check_reductions(CollectiveOperation::Reduce); }
TEST_CASE("Reduce scatter gives each rank its block of the reduction, whatever the shares") {
  check_reductions(CollectiveOperation::ReduceScatter);
}
TEST_CASE("Broadcast gives every rank what the root has, whatever the shares") {
  check_moves(CollectiveOperation::Broadcast);
}
TEST_CASE("All gather gives every rank what all have, whatever the shares") {
  check_moves(CollectiveOperation::AllGather);
}
TEST_CASE("All to all exchanges blocks, whatever the shares") { check_moves(CollectiveOperation::AllToAll); }

TEST_CASE("Every rank can be the root") {
  Random random(3);
  Sources sources(ElementType::F32, 8);
  for (const auto kind : {CollectiveOperation::Broadcast, CollectiveOperation::Reduce})
    for (std::size_t root = 0; root < 8; ++root)
      for (const bool in_place : {false, true}) {
        Operation operation({.operation = kind, .count = 3000, .root = root}, 8, in_place, sources);
        operation.run(3, false, random);
        CAPTURE(cox::to_string(kind), root, in_place);
        CHECK(operation.is_as_expected());
      }
}

TEST_CASE("Each share does a part of its own, and about as much as the others") {
  constexpr std::size_t shares = 3;
  for (const auto& facts : cox::collective_operations) {
    if (!facts.has_elements || cox::is_transfer(facts.operation)) continue;
    Sources sources(ElementType::F32, 4);
    const auto bytes_changed = [&](std::initializer_list<std::size_t> some) {
      Operation operation({.operation = facts.operation, .count = 20'000}, 4, false, sources);
      return operation.bytes_changed_by(some, shares);
    };
    CAPTURE(facts.name);
    const std::size_t all = bytes_changed({0, 1, 2});
    std::size_t sum = 0;
    for (std::size_t share = 0; share < shares; ++share) {
      const std::size_t part = bytes_changed({share});
      CHECK(part > all / 4);
      sum += part;
    }
    CHECK(sum == all);
  }
}

TEST_CASE("A barrier moves nothing, nor does an operation of no elements") {
  const std::vector<RankBuffers> nothing(3);
  for (const auto& facts : cox::collective_operations)
    cox::run_share({.operation = facts.operation, .count = 0}, nothing, 0, 2);
  std::array<std::byte, 8> memory{};
  const std::vector<RankBuffers> buffers(2, {.source = memory.data(), .destination = memory.data() + 4});
  cox::run_share({.operation = CollectiveOperation::Barrier, .count = 4}, buffers, 0, 1);
  CHECK((memory == std::array<std::byte, 8>{}));
}

TEST_CASE("A transfer moves every byte from its place to its place, and no other") {
  Random random(GENERATE(1U, 2U, 3U, 4U));
  for (int i = 0; i < 500; ++i) {
    const ElementType type = cox::element_types[random() % cox::element_types.size()].type;
    const std::size_t count = random() % 4 == 0 ? random() % 30'000 : random() % 40;
    const std::size_t bytes = count * cox::element_size(type);
    const Side from = any_side(bytes, random);
    const Side to = any_side(bytes, random);
    const Bytes sent = memory_of(from, bytes, random);
    Bytes received = memory_of(to, bytes, random);
    Bytes expected = received;
    for (std::size_t byte = 0; byte < bytes; ++byte)
      expected[guard + to.place_of(byte)] = sent[guard + from.place_of(byte)];

    const std::array buffers{
        RankBuffers{.source = sent.data() + guard, .row_bytes = from.row_bytes, .pitch = from.pitch},
        RankBuffers{.destination = received.data() + guard, .row_bytes = to.row_bytes, .pitch = to.pitch}};
    const auto operation = random() % 2 == 0 ? CollectiveOperation::Send : CollectiveOperation::Receive;
    const std::size_t shares = share_counts[random() % share_counts.size()];
    for (std::size_t share = shares; share-- > 0;)
      cox::run_share({.operation = operation, .element_type = type, .count = count}, buffers, share, shares);
    CAPTURE(i, count, from.row_bytes, from.pitch, to.row_bytes, to.pitch, shares);
    CHECK((received == expected));
  }
}

TEST_CASE("Each share of a transfer moves a part of its own") {
  const Bytes sent(5000, std::byte{1});
  Bytes received(sent.size());
  const std::array buffers{RankBuffers{.source = sent.data(), .row_bytes = 100},
                           RankBuffers{.destination = received.data(), .row_bytes = 1000}};
  std::ptrdiff_t before = 0;
  for (std::size_t share = 0; share < 4; ++share) {
    cox::run_share({.operation = CollectiveOperation::Send, .element_type = ElementType::U8, .count = sent.size()},
                   buffers, share, 4);
    const std::ptrdiff_t moved = std::ranges::count(received, std::byte{1});
    CHECK(moved > before);
    before = moved;
  }
  CHECK(received == sent);
}
