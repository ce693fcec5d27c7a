// Sums have the same bits on every rank and in every run, whatever else the devices do.

#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <future>
#include <random>

#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr std::size_t elements = 40'000;
constexpr std::size_t ranks = 4;

/// Values of very different sizes, so that the order of additions shows.
std::vector<float> floats_of(std::size_t rank) {
  std::mt19937 random(static_cast<std::uint32_t>(17 + rank));
  std::uniform_real_distribution<float> fraction(-1.0F, 1.0F);
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = fraction(random) * static_cast<float>(1ULL << (random() % 40));
  return values;
}

std::vector<std::uint32_t> words_of(std::size_t rank) {
  std::vector<std::uint32_t> words(elements);
  std::ranges::transform(floats_of(rank), words.begin(),
                         [](float value) { return std::bit_cast<std::uint32_t>(value); });
  return words;
}

std::vector<std::uint16_t> bf16_of(std::size_t rank) {
  std::vector<std::uint16_t> halves(elements);
  std::ranges::transform(words_of(rank), halves.begin(),
                         [](std::uint32_t word) { return static_cast<std::uint16_t>(word >> 16U); });
  return halves;
}

/// All ranks' sums of `values_of(rank)`, in 20 runs in which ranks come in different orders, beside others' work.
template <class Word, class Fleet, class Values>
void require_same_bits(Fleet& fleet, ElementType type, Values&& values_of) {
  std::vector<std::vector<Word>> values;
  for (std::size_t rank = 0; rank < ranks; ++rank) values.push_back(values_of(rank));
  std::vector<Word> first;
  for (std::size_t run = 0; run < 20; ++run) {
    std::vector<Handle> results(ranks);
    in_parallel(ranks, [&](std::size_t thread) {
      const std::size_t rank = (thread + run) % ranks;
      const Handle source = to_device(fleet[rank], values[rank]);
      results[rank] = fleet[rank].empty(source.size());
      fleet[rank].all_reduce(source, results[rank], type, fleet.devices());
      settle(fleet[rank]);
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto found = read_soon<Word>(fleet[rank], results[rank]);
      if (first.empty()) first = found;
      REQUIRE(found == first);
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("Sums of floats have the same bits on every rank and in every run, under load", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, ranks);
  TestType fleet(ranks);
  std::atomic<bool> over{false};
  std::vector<std::future<void>> load;
  for (std::size_t rank = 0; rank < 2; ++rank)
    load.push_back(std::async(std::launch::async, [&, rank] {
      while (!over) static_cast<void>(read_soon(fleet[rank], to_device(fleet[rank], numbers_of(rank, 20'000))));
    }));
  try {
    require_same_bits<std::uint32_t>(fleet, ElementType::F32, words_of);
    require_same_bits<std::uint16_t>(fleet, ElementType::BF16, bf16_of);
  } catch (...) {
    over = true;
    throw;
  }
  over = true;
  for (std::future<void>& end : load) end.get();
}
