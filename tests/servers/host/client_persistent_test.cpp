#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/memory/allocation_mode.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/runtime/server_error.hpp>

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
using cox::CubeCount;
using cox::Handle;
using cox::HostClient;
using cox::IoError;
using cox::KernelArguments;
using cox::ServerError;

namespace {

constexpr std::size_t capacity = std::size_t{64} << 10U;

cox::HostOptions small() { return {.device_count = 2, .threads_per_device = 2, .memory_capacity = capacity}; }

std::size_t address(const HostClient& client, const Handle& handle) {
  return reinterpret_cast<std::uintptr_t>(client.get_resource(handle).resource.data());
}

/// Tells memory of the persistent pool from that of the other: each has a range of addresses of its own, of eight times
/// the capacity, and the first allocation of a device is at the beginning of one.
class Pools {
 public:
  explicit Pools(const HostClient& client) : client_(client), automatic_(client.empty(1)) {}

  [[nodiscard]] bool is_persistent(const Handle& handle) const {
    const std::size_t here = address(client_, handle);
    const std::size_t first = address(client_, automatic_);
    return (here > first ? here - first : first - here) > 4 * capacity;
  }

 private:
  const HostClient& client_;
  Handle automatic_;
};

/// What the client's stream has found wrong with its allocations.
std::optional<IoError::Kind> failure(const HostClient& client) {
  return kind_of<IoError>([&] {
    try {
      client.sync().get();
    } catch (const ServerError& error) {
      std::rethrow_exception(error.cause());
    }
  });
}

}  // namespace

TEST_CASE("Persistent memory does not stand between what comes and goes") {
  OpenHost host(small());
  const HostClient& client = host.client();
  const Handle first = client.empty(512);
  const Handle between = client.empty(512);
  const Handle apart = client.memory_persistent_allocation([&] { return client.empty(512); });
  const Handle last = client.empty(512);
  CHECK(address(client, between) == address(client, first) + 512);
  CHECK(address(client, last) == address(client, between) + 512);
  CHECK((address(client, apart) < address(client, first) || address(client, apart) > address(client, last)));
  client.write(apart, Bytes::copy_of(pattern(512)));
  CHECK(client.read_one(apart) == Bytes::copy_of(pattern(512)));
  const auto report = client.memory_report();
  CHECK(report.usage.number_allocs == 4);
  CHECK(report.usage.bytes_in_use == 2048);
}

TEST_CASE("Windows of persistent allocation nest, and end with what the callable returns or throws") {
  OpenHost host(small());
  const HostClient& client = host.client();
  const Pools pools(client);
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

TEST_CASE("A window of persistent allocation is one of the client's stream, not of others or of the thread") {
  OpenHost host(small());
  const HostClient pinned = host.on_new_stream();
  const HostClient& unpinned = host.client();
  const Pools pools(unpinned);
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

TEST_CASE("allocation_mode opens and closes windows, and no more than are open") {
  OpenHost host(small());
  const HostClient& client = host.client();
  const Pools pools(client);
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

TEST_CASE("L13: a window of persistent allocation may be left open by a shutdown") {
  std::atomic<int> reported{0};
  cox::set_task_error_callback([&](const cox::TaskError&) { ++reported; });
  OpenHost host(small());
  const HostClient client = host.client();
  CHECK(client.memory_persistent_allocation([&] {
    (void)client.empty(8);
    cox::shutdown(host.device());
    return 3;
  }) == 3);
  CHECK(kind_of<CallError>([&] { client.memory_persistent_allocation([] {}); }) == CallError::Kind::Closed);
  cox::set_task_error_callback({});
  CHECK(reported == 0);
  const HostClient again = HostClient::load(host.device());
  const Pools pools(again);
  CHECK_FALSE(pools.is_persistent(again.empty(8)));  // a new device has no windows
}

TEST_CASE("Both kinds of memory share the device's capacity, and each has what the other gave back") {
  OpenHost host(small());
  const HostClient& client = host.client();
  constexpr std::size_t most = capacity / 8 * 5;
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

TEST_CASE("Memory pools are installed anew, with a capacity that holds for both kinds") {
  OpenHost host(small());
  const HostClient& client = host.client();
  client.install_memory_pools({.capacity = capacity / 2});
  CHECK(client.memory_report().capacity == capacity / 2);
  (void)client.empty(capacity);
  CHECK(failure(client) == IoError::Kind::BufferTooBig);
  {
    const Handle half = client.memory_persistent_allocation([&] { return client.empty(capacity / 4); });
    (void)client.empty(capacity / 8 * 3);
    CHECK(failure(client) == IoError::Kind::OutOfMemory);
    const Handle rest = client.empty(capacity / 4);
    CHECK_FALSE(failure(client));
  }
  client.install_memory_pools({.capacity = 8 * capacity});  // no more than there is
  CHECK(client.memory_report().capacity == capacity);
  client.install_memory_pools({});
  CHECK(client.memory_report().capacity == capacity);
  (void)client.empty(capacity);
  CHECK_FALSE(failure(client));
}

TEST_CASE("Memory pools are not installed while anything lives, and then nothing has changed") {
  OpenHost host(small());
  const HostClient& client = host.client();
  const auto install = [&] { client.install_memory_pools({.capacity = capacity / 2}); };
  Handle alive = client.create(Bytes::copy_of(pattern(1000)));
  CHECK(kind_of<ServerError>(install) == ServerError::Kind::Validation);
  CHECK(mentions(message_of(install), {"DeviceId(type=0, index=0)", "1 allocations are alive"}));
  CHECK(client.memory_report().capacity == capacity);
  CHECK(client.read_one(alive) == Bytes::copy_of(pattern(1000)));
  alive = client.memory_persistent_allocation([&] { return client.empty(8); });
  CHECK(kind_of<ServerError>(install) == ServerError::Kind::Validation);
  alive = {};
  client.sync().get();
  client.memory_cleanup();
  install();
  CHECK(client.memory_report().capacity == capacity / 2);
  CHECK(client.memory_report().usage.bytes_reserved == 0);
}

TEST_CASE("L11: memory pools are not installed while queued work touches memory, whoever dropped it") {
  OpenHost host(small());
  const HostClient& client = host.client();
  Gate gate;
  std::uint32_t seen = 0;
  client.launch(gate.kernel(1, [&](const auto& context) { seen = context.template buffer<std::uint32_t>(0)[0]; }),
                CubeCount::single(), KernelArguments{}.with_buffer(upload(client, {7})));
  gate.wait_until_entered();
  REQUIRE(client.memory_usage().number_allocs == 0);
  CHECK(kind_of<ServerError>([&] { client.install_memory_pools({}); }) == ServerError::Kind::Validation);
  gate.open();
  client.sync().get();
  CHECK(seen == 7);
  client.install_memory_pools({});
  CHECK(numbers(client.read_one(upload(client, {8}))) == std::vector<std::uint32_t>{8});
}

TEST_CASE("A layout of memory pools that makes no sense is refused with what is wrong") {
  OpenHost host(small());
  const auto install = [&] { host.client().install_memory_pools({.capacity = 4096, .slack = 1001}); };
  CHECK(kind_of<ServerError>(install) == ServerError::Kind::Validation);
  CHECK(mentions(message_of(install), {"DeviceId(type=0, index=0)", "1001 per mille", "at most 1000"}));
  CHECK(host.client().memory_report().capacity == capacity);
}
