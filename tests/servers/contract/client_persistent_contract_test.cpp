#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/memory_pool_layout.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::AllocationMode;
using cox::Bytes;
using cox::CallError;
using cox::Handle;
using cox::IoError;
using cox::ServerError;

namespace {

template <class Backend>
constexpr std::size_t capacity = 16 * Backend::min_memory;
template <class Backend>
constexpr DeviceOptions small{.memory = capacity<Backend>, .devices = 2};

template <class Backend>
std::uintptr_t address(const typename Backend::Client& client, const Handle& handle) {
  return Backend::address(client.get_resource(handle).resource);
}

/// Tells memory of the persistent pool from that of the other: each has a range of addresses of its own, of eight times
/// the capacity, and the first allocation of a device is at the beginning of one.
template <class Backend>
class Pools {
 public:
  using Client = typename Backend::Client;
  explicit Pools(const Client& client) : client_(client), automatic_(client.empty(1)) {}

  [[nodiscard]] bool is_persistent(const Handle& handle) const {
    const std::uintptr_t here = address<Backend>(client_, handle);
    const std::uintptr_t first = address<Backend>(client_, automatic_);
    return (here > first ? here - first : first - here) > 4 * capacity<Backend>;
  }

 private:
  const Client& client_;
  Handle automatic_;
};

/// What the client's stream has found wrong with its allocations.
template <class Client>
std::optional<IoError::Kind> failure(const Client& client) {
  return kind_of<IoError>([&] {
    try {
      client.sync().get();
    } catch (const ServerError& error) {
      std::rethrow_exception(error.cause());
    }
  });
}

}  // namespace

TEMPLATE_TEST_CASE("Persistent memory does not stand between what comes and goes", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto& client = device.client();
  const Handle first = client.empty(512);
  const Handle between = client.empty(512);
  const Handle apart = client.memory_persistent_allocation([&] { return client.empty(512); });
  const Handle last = client.empty(512);
  CHECK(address<TestType>(client, between) == address<TestType>(client, first) + 512);
  CHECK(address<TestType>(client, last) == address<TestType>(client, between) + 512);
  CHECK((address<TestType>(client, apart) < address<TestType>(client, first) ||
         address<TestType>(client, apart) > address<TestType>(client, last)));
  client.write(apart, Bytes::copy_of(pattern(512)));
  CHECK(client.read_one(apart) == Bytes::copy_of(pattern(512)));
  const auto report = client.memory_report();
  CHECK(report.usage.number_allocs == 4);
  CHECK(report.usage.bytes_in_use == 2048);
}

TEMPLATE_TEST_CASE("Windows of persistent allocation nest, and end with what the callable returns or throws", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto& client = device.client();
  const Pools<TestType> pools(client);
  Handle inner;
  Handle after_inner;
  int given = 0;
  int& returned = client.memory_persistent_allocation([&]() -> int& {
    inner = client.memory_persistent_allocation([&] { return client.empty(8); });
    after_inner = client.empty(8);
    return given;
  });
  CHECK(&returned == &given);
  CHECK(pools.is_persistent(inner));
  CHECK(pools.is_persistent(after_inner));
  CHECK_FALSE(pools.is_persistent(client.empty(8)));

  Handle thrown_over;
  CHECK_THROWS_AS(client.memory_persistent_allocation([&] {
    thrown_over = client.empty(8);
    throw std::out_of_range("as it should");
  }),
                  std::out_of_range);
  CHECK(pools.is_persistent(thrown_over));
  CHECK_FALSE(pools.is_persistent(client.empty(8)));
}

TEMPLATE_TEST_CASE("A window of persistent allocation is one of the client's stream, not of others or of the thread",
                   "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto pinned = device.on_new_stream();
  const auto& unpinned = device.client();
  const Pools<TestType> pools(unpinned);
  pinned.memory_persistent_allocation([&] {
    CHECK(pools.is_persistent(pinned.empty(8)));
    CHECK_FALSE(pools.is_persistent(unpinned.empty(8)));
  });
  unpinned.memory_persistent_allocation([&] {
    CHECK(pools.is_persistent(unpinned.empty(8)));
    CHECK_FALSE(pools.is_persistent(pinned.empty(8)));
    const cox::StreamScope scope(cox::StreamId::allocate());
    CHECK_FALSE(pools.is_persistent(unpinned.empty(8)));
  });
  CHECK_FALSE(pools.is_persistent(unpinned.empty(8)));
}

TEMPLATE_TEST_CASE("allocation_mode opens and closes windows, and no more than are open", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto& client = device.client();
  const Pools<TestType> pools(client);
  const auto persistent = [&] { return pools.is_persistent(client.empty(8)); };
  client.allocation_mode(AllocationMode::Persistent);
  client.allocation_mode(AllocationMode::Persistent);
  CHECK(persistent());
  client.allocation_mode(AllocationMode::Auto);
  CHECK(persistent());
  client.allocation_mode(AllocationMode::Auto);
  CHECK_FALSE(persistent());
  client.allocation_mode(AllocationMode::Auto);
  CHECK_FALSE(persistent());
  client.allocation_mode(AllocationMode::Persistent);
  CHECK(persistent());
}

TEMPLATE_TEST_CASE("L13: a window of persistent allocation may be left open by a shutdown", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  std::atomic<int> reported{0};
  cox::set_task_error_callback([&](const cox::TaskError&) { ++reported; });
  OpenDevice<TestType> device(small<TestType>);
  const auto client = device.client();
  CHECK(client.memory_persistent_allocation([&] {
    (void)client.empty(8);
    cox::shutdown(device.device());
    return 3;
  }) == 3);
  CHECK(kind_of<CallError>([&] { client.memory_persistent_allocation([] {}); }) == CallError::Kind::Closed);
  cox::set_task_error_callback({});
  CHECK(reported == 0);
  const auto again = TestType::Client::load(device.device());
  const Pools<TestType> pools(again);
  CHECK_FALSE(pools.is_persistent(again.empty(8)));  // a new device has no windows
}

TEMPLATE_TEST_CASE("Both kinds of memory share the device's capacity, and each has what the other gave back", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto& client = device.client();
  constexpr std::size_t most = capacity<TestType> / 8 * 5;
  const auto persistent = [&] { return client.memory_persistent_allocation([&] { return client.empty(most); }); };
  Handle kept = persistent();
  REQUIRE_FALSE(failure(client));
  (void)client.empty(most);
  CHECK(failure(client) == IoError::Kind::OutOfMemory);
  kept = {};
  kept = client.empty(most);
  CHECK_FALSE(failure(client));
  (void)persistent();
  CHECK(failure(client) == IoError::Kind::OutOfMemory);
  kept = {};
  kept = persistent();
  CHECK_FALSE(failure(client));
}

TEMPLATE_TEST_CASE("Memory pools are installed anew, with a capacity that holds for both kinds", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto& client = device.client();
  client.install_memory_pools({.capacity = capacity<TestType> / 2});
  CHECK(client.memory_report().capacity == capacity<TestType> / 2);
  (void)client.empty(capacity<TestType>);
  CHECK(failure(client) == IoError::Kind::BufferTooBig);
  {
    const Handle half = client.memory_persistent_allocation([&] { return client.empty(capacity<TestType> / 4); });
    (void)client.empty(capacity<TestType> / 8 * 3);
    CHECK(failure(client) == IoError::Kind::OutOfMemory);
    const Handle rest = client.empty(capacity<TestType> / 4);
    CHECK_FALSE(failure(client));
  }
  client.install_memory_pools({.capacity = 8 * capacity<TestType>});  // no more than there is
  CHECK(client.memory_report().capacity == capacity<TestType>);
  client.install_memory_pools({});
  CHECK(client.memory_report().capacity == capacity<TestType>);
  (void)client.empty(capacity<TestType>);
  CHECK_FALSE(failure(client));
}

TEMPLATE_TEST_CASE("Memory pools are not installed while anything lives, and then nothing has changed", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto& client = device.client();
  const auto install = [&] { client.install_memory_pools({.capacity = capacity<TestType> / 2}); };
  Handle alive = client.create(Bytes::copy_of(pattern(1000)));
  CHECK(kind_of<ServerError>(install) == ServerError::Kind::Validation);
  CHECK(mentions(message_of(install), {device.name(), "1 allocations are alive"}));
  CHECK(client.memory_report().capacity == capacity<TestType>);
  CHECK(client.read_one(alive) == Bytes::copy_of(pattern(1000)));
  alive = client.memory_persistent_allocation([&] { return client.empty(8); });
  CHECK(kind_of<ServerError>(install) == ServerError::Kind::Validation);
  alive = {};
  client.sync().get();
  client.memory_cleanup();
  install();
  CHECK(client.memory_report().capacity == capacity<TestType> / 2);
  CHECK(client.memory_report().usage.bytes_reserved == 0);
}

TEMPLATE_TEST_CASE("L11: memory pools are not installed while queued work touches memory, whoever dropped it", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto& client = device.client();
  typename TestType::Gate gate(client);
  launch(client, gate.sum(upload(client, {7})));
  gate.wait_until_entered();
  REQUIRE(client.memory_usage().number_allocs == 0);
  CHECK(kind_of<ServerError>([&] { client.install_memory_pools({}); }) == ServerError::Kind::Validation);
  gate.open();
  client.sync().get();
  CHECK(gate.seen() == 7);
  client.install_memory_pools({});
  CHECK(numbers(client.read_one(upload(client, {8}))) == std::vector<std::uint32_t>{8});
}

TEMPLATE_TEST_CASE("A layout of memory pools that makes no sense is refused with what is wrong", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(small<TestType>);
  const auto install = [&] { device.client().install_memory_pools({.capacity = 4096, .slack = 1001}); };
  CHECK(kind_of<ServerError>(install) == ServerError::Kind::Validation);
  CHECK(mentions(message_of(install), {device.name(), "1001 per mille", "maximum is 1000"}));
  CHECK(device.client().memory_report().capacity == capacity<TestType>);
}
