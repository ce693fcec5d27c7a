#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/communicator/gradient_buckets.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
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
  fleet.for_each([&](std::size_t, auto& client) {
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
    fleet.for_each([&](std::size_t rank, auto& client) {
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
  fleet.for_each([&](std::size_t rank, auto& client) {
    last.push_back(to_device(client, gradient(2 * rank, 3, 0)));
    buckets[rank]->add(3, last.back());
  });
  fleet.for_each(
      [&](std::size_t rank, auto& client) { REQUIRE(from_device<float>(client, last[rank]) == gradient(1, 3, 0)); });
}

TEMPLATE_TEST_CASE("What is added wrongly is refused, and the step goes on", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  auto buckets = buckets_of(fleet, 2, ReduceOperation::Sum);
  const auto refused = [](auto f) { return kind_of<CollectiveError>(f) == CollectiveError::Kind::Validation; };
  std::vector<Handle> memory;
  fleet.for_each([&](std::size_t rank, auto& client) {
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
  fleet.for_each([&](std::size_t rank, auto& client) {
    REQUIRE(from_device<float>(client, memory[rank]) == std::vector<float>(gradient_size, 1));
  });
}

namespace {

/// Clients of rank 0, each on a stream of its own.
template <class Fleet>
auto on_streams(Fleet& fleet, std::size_t count) {
  std::vector<typename Fleet::Client> clients(count, fleet[0]);
  for (auto& client : clients) client.set_stream(StreamId::allocate());
  return clients;
}

/// Adds gradient `index` on the client's stream.
template <class Client>
Handle add(GradientBuckets<Client>& buckets, std::size_t index, const Client& on) {
  const StreamScope scope(on.stream_id());
  Handle memory = to_device(on, gradient(0, index, 0));
  buckets.add(index, memory);
  return memory;
}
template <class Client>
Future<void> finish(GradientBuckets<Client>& buckets, const Client& on) {
  const StreamScope scope(on.stream_id());
  return buckets.finish();
}

/// Buckets of rank 0 alone: the others do not come in time.
template <class Fleet>
auto lonely(Fleet& fleet) {
  return std::make_unique<GradientBuckets<typename Fleet::Client>>(
      fleet[0], fleet.devices(), model(2), ReduceOperation::Sum,
      BucketOptions{.bucket_bytes = 1000, .first_bucket_bytes = 1000});
}

std::vector<Kind> of_missing_rank(std::size_t buckets) { return std::vector(buckets, Kind::Timeout); }

}  // namespace

TEMPLATE_TEST_CASE("L12: buckets that fail reach the streams that added and finished, once, if no future tells it", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CollectiveTimeout timeout(std::chrono::milliseconds(200));
  auto buckets = lonely(fleet);
  const auto clients = on_streams(fleet, 4);
  const Handle one = add(*buckets, 0, clients[0]);
  const Handle other = add(*buckets, 1, clients[1]);
  static_cast<void>(finish(*buckets, clients[2]));
  SECTION("each of them") {
    for (std::size_t i = 0; i < 3; ++i) {
      const auto failures = failures_of(clients[i]);
      CHECK(kinds_of(failures) == of_missing_rank(2));
      CHECK_NOTHROW(settle(clients[i]));
      CHECK_NOTHROW(clients[i].flush());
    }
    CHECK_NOTHROW(settle(clients[3]));
  }
  SECTION("the next read of a gradient") {
    CHECK(kind_of<ServerError>([&] { static_cast<void>(clients[0].read_one(one)); }) == ServerError::Kind::Unhealthy);
  }
  SECTION("also where the buckets are destroyed before") {
    buckets.reset();
    CHECK(kinds_of(failures_of(clients[2])) == of_missing_rank(2));
  }
  for (const auto& client : clients) static_cast<void>(failures_of(client));
}

TEMPLATE_TEST_CASE("L12: buckets whose failure the future of finish has told tell it to nobody else", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CollectiveTimeout timeout(std::chrono::milliseconds(200));
  auto buckets = lonely(fleet);
  const auto clients = on_streams(fleet, 3);
  for (std::size_t i = 0; i < 2; ++i) static_cast<void>(add(*buckets, i, clients[i]));
  try {
    finish(*buckets, clients[2]).get();
    FAIL("a rank is missing, and nothing failed");
  } catch (const ServerError& unhealthy) {
    CHECK(unhealthy.errors().size() == 2);
    CHECK(kind_in<CollectiveError>(unhealthy.cause()) == Kind::Timeout);
  }
  for (const auto& client : clients) CHECK_NOTHROW(settle(client));
}

TEMPLATE_TEST_CASE("L12: a step after one that failed has its own failures, and work again after renewal", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  auto clients = on_streams(fleet, 1);
  auto buckets = lonely(fleet);
  {
    const CollectiveTimeout timeout(std::chrono::milliseconds(200));
    for (std::size_t i = 0; i < 2; ++i) static_cast<void>(add(*buckets, i, clients[0]));
    static_cast<void>(finish(*buckets, clients[0]));
    CHECK(kinds_of(failures_of(clients[0])) == of_missing_rank(2));
  }
  fleet[0].ensure_init_collective(fleet.devices());
  GradientBuckets<typename TestType::Client> others(fleet[1], fleet.devices(), model(2), ReduceOperation::Sum,
                                                    {.bucket_bytes = 1000, .first_bucket_bytes = 1000});
  for (std::size_t i = 0; i < 2; ++i) {
    static_cast<void>(add(*buckets, i, clients[0]));
    others.add(i, to_device(fleet[1], gradient(1, i, 0)));
  }
  auto reduced = others.finish();
  CHECK_NOTHROW(get_soon(finish(*buckets, clients[0])));
  CHECK_NOTHROW(get_soon(std::move(reduced)));
  CHECK_NOTHROW(settle(clients[0]));
}

TEMPLATE_TEST_CASE("L12: buckets in a capture are refused with a typed error on every rank", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  auto buckets = buckets_of(fleet, 1, ReduceOperation::Sum);
  std::vector<Handle> memory;
  std::vector<Future<void>> reduced;
  fleet.for_each([&](std::size_t rank, auto& client) {
    memory.push_back(to_device(client, gradient(rank, 0, 0)));
    client.sync().get();
    client.graph_prepare();
    client.graph_start_capture();
    client.write(memory[rank], Bytes::copy_of(gradient(rank, 0, 1)));
    buckets[rank]->add(0, memory[rank]);
    reduced.push_back(buckets[rank]->finish());
  });
  fleet.for_each([&](std::size_t, auto& client) {
    try {
      static_cast<void>(client.graph_stop_capture());
      FAIL("a capture has buckets in it");
    } catch (const ServerError& error) {
      CHECK(error.kind() == ServerError::Kind::Graph);
      CHECK(kind_in<ServerError>(error.cause()) == ServerError::Kind::Graph);
    }
  });
  for (auto& each : reduced) {
    try {
      get_soon(std::move(each));
      FAIL("gradients of a capture were reduced");
    } catch (const ServerError& unhealthy) {
      CHECK(kind_in<CollectiveError>(unhealthy.cause()) == Kind::RankFailed);
    }
  }
  fleet.for_each([&](std::size_t rank, auto& client) {
    settle(client);
    CHECK(from_device<float>(client, memory[rank]) == gradient(rank, 0, 0));
  });
}
