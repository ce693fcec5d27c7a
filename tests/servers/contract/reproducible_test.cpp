// Sums have the same bits on every rank and in every run, whatever else the devices do.

#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/settings_scope.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr std::size_t elements = 40'000;
constexpr std::size_t ranks = 4;

/// Values of very different sizes, so that the order of additions shows.
std::vector<float> floats_of(std::size_t rank, std::size_t count = elements) {
  std::mt19937 random(static_cast<std::uint32_t>(17 + rank));
  std::uniform_real_distribution<float> fraction(-1.0F, 1.0F);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = fraction(random) * static_cast<float>(1ULL << (random() % 40));
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

namespace {

constexpr std::size_t ranks_of_sum = 3;
constexpr std::size_t elements_of_sum = 2'400'000;  // more than kernels of our own do as long as NCCL may
const std::vector<std::size_t> pieces_of_sum{1, 3, 1'000, 16'384, 20'001, 700'000, elements_of_sum - 737'389};

std::vector<float> floats_from(const std::vector<float>& whole, std::size_t begin, std::size_t count) {
  const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

/// How the ranks form the same sums: each returns the memory of all sums of a rank, in order.
template <class Client>
using WaysToSum =
    std::vector<std::pair<std::string, std::function<std::vector<Handle>(const Client&, const std::vector<float>&,
                                                                         const std::vector<DeviceId>&)>>>;

template <class Client>
WaysToSum<Client> ways_to_sum() {
  const auto pieces = [](const Client& client, const std::vector<float>& values) {
    std::vector<Handle> handles;
    std::size_t begin = 0;
    for (const std::size_t count : pieces_of_sum) {
      handles.push_back(to_device(client, floats_from(values, begin, count)));
      begin += count;
    }
    return handles;
  };
  const auto whole = [](const Client& client, const std::vector<float>& values, const std::vector<DeviceId>& devices) {
    std::vector<Handle> handles{to_device(client, values)};
    client.all_reduce(handles[0], handles[0], ElementType::F32, devices);
    return handles;
  };
  return {
      {"whole", whole},
      {"in another stream",
       [whole](const Client& client, const std::vector<float>& values, const std::vector<DeviceId>& devices) {
         Client other = client;
         other.set_stream(StreamId::allocate());
         return whole(other, values, devices);
       }},
      {"in pieces",
       [pieces](const Client& client, const std::vector<float>& values, const std::vector<DeviceId>& devices) {
         const std::vector<Handle> handles = pieces(client, values);
         for (const Handle& each : handles) client.all_reduce(each, each, ElementType::F32, devices);
         return handles;
       }},
      {"in a group",
       [pieces](const Client& client, const std::vector<float>& values, const std::vector<DeviceId>& devices) {
         const std::vector<Handle> handles = pieces(client, values);
         client.collective_group(devices, [&](CollectiveGroup& group) {
           for (const Handle& each : handles) group.all_reduce(each, each, ElementType::F32);
         });
         return handles;
       }},
      {"scattered, then gathered",
       [](const Client& client, const std::vector<float>& values, const std::vector<DeviceId>& devices) {
         const Handle source = to_device(client, values);
         const Handle share = client.empty(source.size() / ranks_of_sum);
         client.reduce_scatter(source, share, ElementType::F32, devices);
         client.all_gather(share, source, ElementType::F32, devices);
         return std::vector<Handle>{source};
       }},
      {"at one rank, then broadcast",
       [](const Client& client, const std::vector<float>& values, const std::vector<DeviceId>& devices) {
         const Handle source = to_device(client, values);
         const Handle result = client.empty(source.size());
         client.reduce(source, result, ElementType::F32, devices, ReduceOperation::Sum, devices[1]);
         client.broadcast(result, source, ElementType::F32, devices, devices[1]);
         return std::vector<Handle>{source};
       }},
  };
}

}  // namespace

TEMPLATE_TEST_CASE("With collectives.reproducible a sum does not depend on size, group, split and stream", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, ranks_of_sum);
  const SettingsScope in_order({{"collectives.reproducible", true}, {"collectives.peer_memory", true}});
  TestType fleet(ranks_of_sum);
  std::vector<std::vector<float>> values;
  for (std::size_t rank = 0; rank < ranks_of_sum; ++rank) values.push_back(floats_of(rank, elements_of_sum));
  std::vector<float> expected(elements_of_sum);
  for (std::size_t i = 0; i < elements_of_sum; ++i) expected[i] = (values[0][i] + values[1][i]) + values[2][i];
  for (const auto& [name, way] : ways_to_sum<typename TestType::Client>()) {
    INFO(name);
    std::vector<std::vector<Handle>> sums(ranks_of_sum);
    fleet.for_each([&](std::size_t rank, auto& client) { sums[rank] = way(client, values[rank], fleet.devices()); });
    fleet.for_each([&](std::size_t rank, auto& client) {
      std::vector<float> found;
      for (const Handle& each : sums[rank]) {
        const auto part = from_device<float>(client, each);
        found.insert(found.end(), part.begin(), part.end());
      }
      REQUIRE((found == expected));  // not printed: it is long
    });
  }
}
