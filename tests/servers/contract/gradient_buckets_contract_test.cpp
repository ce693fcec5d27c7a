#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/gradient_buckets.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr std::size_t gradient_size = 300;  // numbers in a gradient

std::vector<Gradient> model(std::size_t gradients) {
  return {gradients, Gradient{.bytes = gradient_size * sizeof(float), .type = ElementType::F32}};
}
/// Of whole numbers: their sums are exact.
std::vector<float> gradient(std::size_t rank, std::size_t index, std::size_t step) {
  return std::vector<float>(gradient_size, static_cast<float>(1000 * step + 10 * index + rank));
}

template <class Client>
using Buckets = std::vector<std::unique_ptr<GradientBuckets<Client>>>;

template <class Fleet>
auto buckets_of(Fleet& fleet, std::size_t gradients, ReduceOperation operation) {
  Buckets<typename Fleet::Client> buckets;
  fleet.each([&](std::size_t, auto& client) {
    buckets.push_back(std::make_unique<GradientBuckets<typename Fleet::Client>>(
        client, fleet.devices(), model(gradients), operation,
        BucketOptions{.bucket_bytes = 4000, .first_bucket_bytes = 1000}));
  });
  return buckets;
}

}  // namespace

TEMPLATE_TEST_CASE("Gradients that ranks add in different orders are reduced in place", "", COX_FLEETS) {
  constexpr std::size_t gradients = 17;
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  auto buckets = buckets_of(fleet, gradients, ReduceOperation::Sum);
  for (std::size_t step = 0; step < 3; ++step) {
    std::vector<std::vector<Handle>> memory(fleet.size());
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < fleet.size(); ++rank)
      ranks.emplace_back([&, rank] {
        for (std::size_t i = 0; i < gradients; ++i)
          memory[rank].push_back(to_device(fleet[rank], gradient(rank, i, step)));
        std::vector<std::size_t> order(gradients);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::shuffle(order, std::mt19937(static_cast<unsigned>(rank + 10 * step)));
        for (const std::size_t i : order) buckets[rank]->add(i, memory[rank][i]);
        buckets[rank]->finish().get();
      });
    for (std::thread& rank : ranks) rank.join();
    fleet.each([&](std::size_t rank, auto& client) {
      for (std::size_t i = 0; i < gradients; ++i) {
        std::vector<float> sum(gradient_size);
        for (std::size_t from = 0; from < fleet.size(); ++from)
          for (std::size_t k = 0; k < gradient_size; ++k) sum[k] += gradient(from, i, step)[k];
        REQUIRE(from_device<float>(client, memory[rank][i]) == sum);
      }
    });
  }
}

TEMPLATE_TEST_CASE("A bucket is reduced while gradients of later ones are still to come", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  auto buckets = buckets_of(fleet, 4, ReduceOperation::Mean);
  std::vector<Handle> last;
  fleet.each([&](std::size_t rank, auto& client) {
    last.push_back(to_device(client, gradient(2 * rank, 3, 0)));
    buckets[rank]->add(3, last.back());
  });
  fleet.each(
      [&](std::size_t rank, auto& client) { REQUIRE(from_device<float>(client, last[rank]) == gradient(1, 3, 0)); });
}

TEMPLATE_TEST_CASE("What is added wrongly is refused, and the step goes on", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  auto buckets = buckets_of(fleet, 2, ReduceOperation::Sum);
  const auto refused = [](auto f) { return kind_of<CollectiveError>(f) == CollectiveError::Kind::Validation; };
  std::vector<Handle> memory;
  fleet.each([&](std::size_t rank, auto& client) {
    const Handle right = to_device(client, gradient(rank, 0, 0));
    CHECK(refused([&] { buckets[rank]->add(2, right); }));
    CHECK(refused([&] { buckets[rank]->add(0, right.offset_start(4)); }));
    buckets[rank]->add(0, right);
    CHECK(refused([&] { buckets[rank]->add(0, right); }));
    CHECK(refused([&] { static_cast<void>(buckets[rank]->finish()); }));
    buckets[rank]->add(1, to_device(client, gradient(rank, 1, 0)));
    CHECK(refused([&] { buckets[rank]->add(1, right); }));
    memory.push_back(right);
  });
  for (auto& its : buckets) its->finish().get();
  fleet.each([&](std::size_t rank, auto& client) {
    REQUIRE(from_device<float>(client, memory[rank]) == std::vector<float>(gradient_size, 1));
  });
}
