// Gradient buckets that own the memory of the gradients: one allocation for each bucket, of which the gradients are
// views.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/poison_contract.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/communicator/gradient_buckets.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using Bits = std::vector<std::uint32_t>;

constexpr BucketOptions small_buckets{.bucket_bytes = 4000, .first_bucket_bytes = 1000};
constexpr BucketOptions owning{.bucket_bytes = 4000, .first_bucket_bytes = 1000, .own_memory = true};

template <class Client>
using Buckets = std::vector<std::unique_ptr<GradientBuckets<Client>>>;

template <class Fleet>
auto buckets_of(Fleet& fleet, const std::vector<Gradient>& model, ReduceOperation operation,
                const BucketOptions& options = owning) {
  Buckets<typename Fleet::Client> buckets;
  fleet.for_each([&](std::size_t, auto& client) {
    buckets.push_back(
        std::make_unique<GradientBuckets<typename Fleet::Client>>(client, fleet.devices(), model, operation, options));
  });
  return buckets;
}

/// Gradients of so many 4-byte elements each.
std::vector<Gradient> model_of(const std::vector<std::size_t>& sizes, ElementType type) {
  std::vector<Gradient> model;
  for (const std::size_t size : sizes) model.push_back({.bytes = 4 * size, .type = type});
  return model;
}

std::vector<float> random_floats(std::size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> distribution(-1000.0F, 1000.0F);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

std::size_t reductions_of_rank_0() {
  std::size_t count = 0;
  for (const nlohmann::json& entry : recorded_operations())
    if (entry.at("rank") == 0 && entry.at("profiling_name") == "cox:all_reduce") ++count;
  return count;
}

}  // namespace

TEMPLATE_TEST_CASE("Owned buckets: the results have the same bits as those of buckets that take memory", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const auto operation = GENERATE(ReduceOperation::Sum, ReduceOperation::Mean);
  // Of two ranks: a sum of two has the same bits in any order.
  TestType fleet(2);
  const std::vector<std::size_t> sizes{300, 1, 0, 1025, 3, 64, 300, 0, 7, 129, 1};
  const auto model = model_of(sizes, ElementType::F32);
  auto owned = buckets_of(fleet, model, operation);
  auto taking = buckets_of(fleet, model, operation, small_buckets);
  REQUIRE(owned[0]->plan().buckets() == taking[0]->plan().buckets());
  REQUIRE(owned[0]->plan().buckets() == 3);
  std::mt19937 random(11);
  for (std::size_t step = 0; step < 3; ++step) {
    std::vector<std::vector<Handle>> memory(fleet.size());
    fleet.for_each([&](std::size_t rank, auto& client) {
      for (std::size_t i = sizes.size(); i-- > 0;) {
        REQUIRE(owned[rank]->plan().bucket_of(i) == taking[rank]->plan().bucket_of(i));
        const std::vector<float> values = random_floats(sizes[i], random);
        client.write(owned[rank]->gradient(i), Bytes::copy_of(values));
        owned[rank]->add(i);
        memory[rank].push_back(to_device(client, values));
        taking[rank]->add(i, memory[rank].back());
      }
    });
    std::vector<Future<void>> reduced;
    for (auto* const form : {&owned, &taking})
      for (auto& buckets : *form) reduced.push_back(buckets->finish());
    for (auto& each : reduced) get_soon(std::move(each));
    fleet.for_each([&](std::size_t rank, auto& client) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const Bits expected = read_soon<std::uint32_t>(client, memory[rank][sizes.size() - 1 - i]);
        REQUIRE(read_soon<std::uint32_t>(client, owned[rank]->gradient(i)) == expected);
      }
    });
  }
}

TEMPLATE_TEST_CASE("Owned buckets: each bucket is one operation", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  auto owned = buckets_of(fleet, model_of(std::vector<std::size_t>(17, 300), ElementType::F32), ReduceOperation::Sum);
  REQUIRE(owned[0]->plan().buckets() == 5);
  std::vector<Future<void>> reduced;
  for (auto& buckets : owned) {
    for (std::size_t i = 17; i-- > 0;) buckets->add(i);
    reduced.push_back(buckets->finish());
  }
  for (auto& each : reduced) get_soon(std::move(each));
  CHECK(reductions_of_rank_0() == 5);
}

TEMPLATE_TEST_CASE("Owned buckets: gradients are aligned views of zeroed memory, and the padding stays zero", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  TestType fleet(2);
  const std::vector<std::size_t> sizes{65, 1, 300, 64};
  auto owned = buckets_of(fleet, model_of(sizes, ElementType::U32), ReduceOperation::Sum,
                          {.bucket_bytes = 1U << 20U, .first_bucket_bytes = 1U << 20U, .own_memory = true});
  std::vector<Future<void>> reduced;
  fleet.for_each([&](std::size_t rank, auto& client) {
    auto& buckets = *owned[rank];
    REQUIRE(buckets.plan().buckets() == 1);
    CHECK(read_soon<std::uint32_t>(client, buckets.buffer(0)) == Bits(buckets.buffer(0).size() / 4, 0));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Handle view = buckets.gradient(i);
      CHECK(view.size_in_used() == 4 * sizes[i]);
      CHECK(Backend::address(client.get_resource(view).resource) % 256 == 0);
      launch(client, Backend::fill(view, static_cast<std::uint32_t>(i + 1)));
      buckets.add(i);
    }
    reduced.push_back(buckets.finish());
  });
  for (auto& each : reduced) get_soon(std::move(each));
  fleet.for_each([&](std::size_t rank, auto& client) {
    const auto& buckets = *owned[rank];
    Bits expected(buckets.buffer(0).size() / 4, 0);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (std::size_t k = 0; k < sizes[i]; ++k)
        expected[buckets.plan().offset_of(i) / 4 + k] = static_cast<std::uint32_t>(2 * (i + 1));
    CHECK(read_soon<std::uint32_t>(client, buckets.buffer(0)) == expected);
  });
}

TEMPLATE_TEST_CASE("Owned buckets: gradients of several types are in buckets of one type each", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  std::vector<Gradient> model;
  for (std::size_t i = 0; i < 12; ++i)
    model.push_back(i % 2 == 0 ? Gradient{.bytes = 300 * sizeof(float), .type = ElementType::F32}
                               : Gradient{.bytes = 300 * sizeof(double), .type = ElementType::F64});
  auto owned = buckets_of(fleet, model, ReduceOperation::Mean);
  std::vector<Future<void>> reduced;
  fleet.for_each([&](std::size_t rank, auto& client) {
    const double value = 2.0 * static_cast<double>(rank);
    for (std::size_t i = 0; i < model.size(); ++i) {
      if (i % 2 == 0)
        client.write(owned[rank]->gradient(i), Bytes::copy_of(std::vector<float>(300, static_cast<float>(value))));
      else
        client.write(owned[rank]->gradient(i), Bytes::copy_of(std::vector<double>(300, value)));
      owned[rank]->add(i);
    }
    reduced.push_back(owned[rank]->finish());
  });
  for (auto& each : reduced) get_soon(std::move(each));
  fleet.for_each([&](std::size_t rank, auto& client) {
    for (std::size_t i = 0; i < model.size(); i += 2) {
      CHECK(read_soon<float>(client, owned[rank]->gradient(i)) == std::vector<float>(300, 1.0F));
      CHECK(read_soon<double>(client, owned[rank]->gradient(i + 1)) == std::vector<double>(300, 1.0));
    }
  });
}

TEMPLATE_TEST_CASE("Owned buckets: calls of the other form and wrong arguments are refused, and the step goes on", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto refused = [](auto f) { return kind_of<CollectiveError>(f) == CollectiveError::Kind::Validation; };
  const auto model = model_of({300, 300}, ElementType::F32);
  auto owned = buckets_of(fleet, model, ReduceOperation::Sum);
  auto taking = buckets_of(fleet, model, ReduceOperation::Sum, small_buckets);
  const Handle memory = to_device(fleet[0], std::vector<float>(300, 1.0F));
  CHECK(refused([&] { owned[0]->add(0, memory); }));
  CHECK(refused([&] { owned[0]->add(2); }));
  CHECK(refused([&] { static_cast<void>(owned[0]->gradient(2)); }));
  CHECK(refused([&] { static_cast<void>(owned[0]->buffer(2)); }));
  CHECK(refused([&] { taking[0]->add(0); }));
  CHECK(refused([&] { static_cast<void>(taking[0]->gradient(0)); }));
  CHECK(refused([&] { static_cast<void>(taking[0]->buffer(0)); }));
  CHECK(refused([&] {
    GradientBuckets<typename TestType::Client>(fleet[0], fleet.devices(), {{.bytes = 6, .type = ElementType::F32}},
                                               ReduceOperation::Sum, owning);
  }));
  std::vector<Future<void>> reduced;
  fleet.for_each([&](std::size_t rank, auto& client) {
    for (std::size_t i = 0; i < 2; ++i) {
      client.write(owned[rank]->gradient(i), Bytes::copy_of(std::vector<float>(300, 1.0F)));
      owned[rank]->add(i);
      CHECK(refused([&] { owned[rank]->add(i); }));
    }
    reduced.push_back(owned[rank]->finish());
  });
  for (auto& each : reduced) get_soon(std::move(each));
  fleet.for_each([&](std::size_t rank, auto& client) {
    CHECK(read_soon<float>(client, owned[rank]->gradient(1)) == std::vector<float>(300, 2.0F));
    CHECK_NOTHROW(settle(client));
  });
}

TEMPLATE_TEST_CASE("L12: a failure of owned buckets reaches the streams that added, if no future delivers it", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CollectiveTimeout timeout(std::chrono::milliseconds(200));
  GradientBuckets<typename TestType::Client> lonely(fleet[0], fleet.devices(), model_of({300, 300}, ElementType::F32),
                                                    ReduceOperation::Sum, owning);
  std::vector<typename TestType::Client> clients(3, fleet[0]);
  for (auto& client : clients) client.set_stream(StreamId::allocate());
  for (std::size_t i = 0; i < 2; ++i) {
    const StreamScope scope(clients[i].stream_id());
    lonely.add(1 - i);
  }
  static_cast<void>(lonely.finish());
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(kinds_of(failures_of(clients[i])) == std::vector(2, Kind::Timeout));
    CHECK_NOTHROW(settle(clients[i]));
  }
  CHECK_NOTHROW(settle(clients[2]));
  static_cast<void>(failures_of(fleet[0]));
}

namespace {

/// A training step of two ranks. The buckets own two gradients, in a bucket each. Each rank's kernels write its
/// number and 1.
template <class Fleet>
struct Training {
  using Backend = typename Fleet::Backend;
  static constexpr std::size_t size = 300;

  explicit Training(const BucketOptions& options = owning)
      : buckets(buckets_of(fleet, model_of({size, size}, ElementType::U32), ReduceOperation::Sum, options)) {
    settle(fleet[0]);
    settle(fleet[1]);
  }
  void compute(std::size_t rank, std::size_t index) {
    launch(fleet[rank], Backend::fill(buckets[rank]->gradient(index), static_cast<std::uint32_t>(rank + 1)));
    buckets[rank]->add(index);
  }
  void step() {
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::size_t index = 2; index-- > 0;) compute(rank, index);
  }
  /// What finish() of each rank throws; null: nothing.
  std::vector<std::exception_ptr> finish() {
    std::vector<Future<void>> reduced;
    for (auto& its : buckets) reduced.push_back(its->finish());
    return failures(std::move(reduced));
  }
  std::vector<std::exception_ptr> reset() {
    std::vector<Future<void>> reduced;
    for (auto& its : buckets) reduced.push_back(its->reset());
    return failures(std::move(reduced));
  }
  static std::vector<std::exception_ptr> failures(std::vector<Future<void>> reduced) {
    std::vector<std::exception_ptr> thrown;
    for (auto& each : reduced) {
      thrown.emplace_back();
      try {
        get_soon(std::move(each));
      } catch (...) {
        thrown.back() = std::current_exception();
      }
    }
    return thrown;
  }
  /// A whole step, and its results.
  void require_good_step() {
    step();
    for (const std::exception_ptr& failure : finish()) REQUIRE(failure == nullptr);
    fleet.for_each([&](std::size_t rank, auto& client) {
      for (std::size_t index = 0; index < 2; ++index)
        REQUIRE(read_soon<std::uint32_t>(client, buckets[rank]->gradient(index)) == Bits(size, 3));
      REQUIRE(next_failure(client) == nullptr);
    });
  }

  Fleet fleet{2};
  Buckets<typename Fleet::Client> buckets;
};

}  // namespace

TEMPLATE_TEST_CASE("L14: a failed gradient poisons its bucket on every rank, and reset() ends that", "[poison]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  Training<TestType> f;
  f.require_good_step();
  fail_around<Backend>(f.fleet[1], f.buckets[1]->gradient(1), moment, [&] {
    for (auto& its : f.buckets) {
      its->add(1);
      its->add(0);
    }
  });
  for (const std::exception_ptr& failure : f.finish()) {
    REQUIRE(find_cause<CollectiveError>(failure, Kind::RankFailed) != nullptr);
    REQUIRE(is_late_failure<Backend>(failure));
  }
  f.fleet.for_each([&](std::size_t rank, auto& client) {
    static_cast<void>(next_failure(client));  // that of the kernel itself
    REQUIRE(is_poisoned_by_late_failure<Backend>(failure_of_read(client, f.buckets[rank]->gradient(1))));
    REQUIRE(failure_of_read(client, f.buckets[rank]->gradient(0)) == nullptr);  // another bucket
  });

  // A kernel that writes a part does not end it.
  f.step();
  for (const std::exception_ptr& failure : f.finish()) REQUIRE(is_late_failure<Backend>(failure));
  f.fleet.for_each([&](std::size_t, auto& client) { REQUIRE(is_late_failure<Backend>(next_failure(client))); });

  SECTION("reset") {
    for (const std::exception_ptr& failure : f.reset()) REQUIRE(failure == nullptr);
    f.fleet.for_each([&](std::size_t rank, auto& client) {
      REQUIRE(read_soon<std::uint32_t>(client, f.buckets[rank]->buffer(0)) ==
              Bits(f.buckets[rank]->buffer(0).size() / 4, 0));
    });
  }
  SECTION("a kernel that overwrites the whole buffer") {
    f.fleet.for_each([&](std::size_t rank, auto& client) {
      auto clear = Backend::fill(f.buckets[rank]->buffer(0), 0);
      clear.arguments = KernelArguments{}
                            .with_buffer(f.buckets[rank]->buffer(0), Access::Overwrite)
                            .with_info(clear.arguments.info());
      launch(client, std::move(clear));
    });
  }
  f.require_good_step();
}

TEMPLATE_TEST_CASE("A step of buckets is abandoned by reset(), and the next one is whole", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const bool own = GENERATE(true, false);
  TestType fleet(2);
  auto buckets = buckets_of(fleet, model_of({300, 300, 300}, ElementType::F32), ReduceOperation::Sum,
                            {.bucket_bytes = 2000, .first_bucket_bytes = 1000, .own_memory = own});
  const auto add = [&](std::size_t rank, std::size_t index, float value) {
    if (own) {
      fleet[rank].write(buckets[rank]->gradient(index), Bytes::copy_of(std::vector<float>(300, value)));
      buckets[rank]->add(index);
      return buckets[rank]->gradient(index);
    }
    Handle memory = to_device(fleet[rank], std::vector<float>(300, value));
    buckets[rank]->add(index, memory);
    return memory;
  };
  const std::vector<Handle> first{add(0, 2, 1), add(1, 2, 1)};  // a whole bucket
  static_cast<void>(add(0, 1, 1));                              // half a bucket, of one rank
  std::vector<Future<void>> reset;
  for (auto& its : buckets) reset.push_back(its->reset());
  for (auto& each : reset) CHECK_NOTHROW(get_soon(std::move(each)));
  fleet.for_each([&](std::size_t rank, auto& client) {
    CHECK(read_soon<float>(client, first[rank]) == std::vector<float>(300, own ? 0.0F : 2.0F));
  });

  std::vector<std::vector<Handle>> memory(2);
  std::vector<Future<void>> reduced;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t index = 0; index < 3; ++index) memory[rank].push_back(add(rank, index, 5));
    reduced.push_back(buckets[rank]->finish());
  }
  for (auto& each : reduced) CHECK_NOTHROW(get_soon(std::move(each)));
  fleet.for_each([&](std::size_t rank, auto& client) {
    for (const Handle& gradient : memory[rank])
      CHECK(read_soon<float>(client, gradient) == std::vector<float>(300, 10.0F));
    CHECK_NOTHROW(settle(client));
  });
}

TEMPLATE_TEST_CASE("L12: buckets whose ranks stopped at different places work again after abort and reset()", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  Training<TestType> f;
  f.require_good_step();
  f.compute(0, 1);  // rank 1 does not submit that bucket
  const CommunicationId all(f.fleet.devices());
  f.fleet[1].abort_collective(all, std::make_exception_ptr(std::runtime_error("no more data")));
  const auto failures = f.reset();
  REQUIRE(find_cause<CollectiveError>(failures[0], Kind::Aborted) != nullptr);
  REQUIRE(find_cause<std::runtime_error>(failures[0]) != nullptr);
  REQUIRE(failures[1] == nullptr);
  f.fleet[0].ensure_init_collective(all);
  f.require_good_step();
}

TEMPLATE_TEST_CASE("Buckets of which one rank alone was reset are not summed with those of another step", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  Training<TestType> f;
  f.require_good_step();
  const CommunicationId all(f.fleet.devices());
  const auto is_mismatch = [](const std::exception_ptr& failure) {
    return find_cause<CollectiveError>(failure, Kind::Mismatch) != nullptr;
  };
  std::vector<std::exception_ptr> failures;

  SECTION("after a bucket: it would be summed with the next one") {
    for (std::size_t rank = 0; rank < 2; ++rank) f.compute(rank, 1);
    REQUIRE_NOTHROW(get_soon(f.buckets[0]->reset()));
    f.compute(0, 1);  // bucket 0 again, where rank 1 submits bucket 1, of the same size
    f.compute(1, 0);
    REQUIRE(is_mismatch(next_failure(f.fleet[1])));
  }
  SECTION("after whole steps: it would be summed with a later step") {
    f.require_good_step();
    REQUIRE_NOTHROW(get_soon(f.buckets[0]->reset()));
    f.step();
    failures = f.finish();
    for (const std::exception_ptr& failure : failures) REQUIRE(is_mismatch(failure));
    const std::string text = find_cause<CollectiveError>(failures[0], Kind::Mismatch)->what();
    CHECK(text.find("part 0 of step 0") != std::string::npos);
    CHECK(text.find("part 0 of step 2") != std::string::npos);
  }

  // Recovered as after any step that the ranks have left at different places.
  f.fleet[0].abort_collective(all, std::make_exception_ptr(std::runtime_error("start again")));
  static_cast<void>(f.reset());
  f.fleet.for_each([&](std::size_t, auto& client) { static_cast<void>(next_failure(client)); });
  f.fleet[0].ensure_init_collective(all);
  f.require_good_step();
}
