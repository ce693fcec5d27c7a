// Memory and functions of other owners, on devices of any kind: borrow, call, issued, quiet.

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/foreign_memory.hpp>
#include <coxswain/tests/servers/contract/poison_contract.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>
#include <coxswain/tests/support/want_of_memory.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using Values = std::vector<std::uint32_t>;
constexpr std::size_t bytes_of_four = 4 * sizeof(std::uint32_t);

/// Counts the calls of a release, and notes whether they were on a device thread.
struct Releases {
  std::shared_ptr<std::atomic<int>> count = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<std::atomic<bool>> elsewhere = std::make_shared<std::atomic<bool>>(false);

  [[nodiscard]] BorrowedMemory::Release callback() const {
    return [count = count, elsewhere = elsewhere] {
      if (ThreadContext::current() == nullptr) elsewhere->store(true);
      count->fetch_add(1);
    };
  }
  [[nodiscard]] int number() const { return count->load(); }
  void wait() const {
    wait_until([&] { return number() != 0; });
    CHECK(number() == 1);
    CHECK_FALSE(elsewhere->load());
  }
};

/// A handle of four elements of the test's memory.
template <class Backend>
struct Borrowed {
  OpenDevice<Backend> device;
  typename Backend::Client& client = device.client();
  typename Backend::Client other = device.on_new_stream();
  ForeignMemory<Backend> memory{device.device(), bytes_of_four};
  Releases releases;
  Handle handle = client.borrow(memory.data(), bytes_of_four, {}, releases.callback());

  explicit Borrowed(const Values& values = {1, 2, 3, 4}) { client.write(handle, Bytes::copy_of(values)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  /// The memory goes when the device has ended.
  ~Borrowed() { shutdown(device.device()); }
};

bool says(const std::exception_ptr& error, const char* text) {
  return error != nullptr && mentions(describe(error), {text});
}

template <class Client>
std::optional<IoError::Kind> refusal_of(const Client& client, void* pointer, std::size_t bytes) {
  bool released = false;
  try {
    static_cast<void>(client.borrow(pointer, bytes, {}, [&] { released = true; }));
  } catch (const IoError& error) {
    CHECK_FALSE(released);
    return error.kind();
  }
  return std::nullopt;
}

}  // namespace

TEMPLATE_TEST_CASE("Borrowed memory is used like any other, in place", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  CHECK(content(f.client, f.handle) == Values{1, 2, 3, 4});
  const auto where = f.client.get_resource(f.handle);
  CHECK(TestType::address(where.resource) == reinterpret_cast<std::uintptr_t>(f.memory.data()));
  const Handle own = f.client.empty(bytes_of_four);
  launch(f.client, TestType::plus_one(f.handle, own));
  CHECK(content(f.client, own) == Values{2, 3, 4, 5});
  launch(f.client, TestType::copy(own, f.handle));
  CHECK(content(f.client, f.handle) == Values{2, 3, 4, 5});
  CHECK(content(f.client, f.handle.offset_start(8)) == Values{4, 5});
  CHECK(f.releases.number() == 0);
}

TEMPLATE_TEST_CASE("Borrowed memory has the hazards of any other between streams", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  f.client.sync().get();
  typename TestType::Gate gate(f.client);
  launch(f.client, gate.fill(f.handle, 7));
  gate.wait_until_entered();
  auto read = f.other.read_async(std::vector<Handle>{f.handle});
  const Handle copied = f.other.empty(bytes_of_four);
  launch(f.other, TestType::copy(f.handle, copied));
  gate.open();
  CHECK(numbers(get_soon(std::move(read))[0]) == Values{7, 7, 7, 7});
  CHECK(content(f.other, copied) == Values{7, 7, 7, 7});
}

TEMPLATE_TEST_CASE("Borrowed memory is released once, after its last use", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  f.client.sync().get();
  const Handle result = f.client.empty(bytes_of_four);
  typename TestType::Gate gate(f.client);
  launch(f.client, gate.copy(f.handle, result));
  gate.wait_until_entered();
  std::optional<Handle> view = f.handle.offset_start(4);
  f.handle = {};
  reach(f.client);
  CHECK(f.releases.number() == 0);
  SECTION("with the last handle before the work ends") {
    std::thread([&] { view.reset(); }).join();
    reach(f.client);
    reach(f.client);
    CHECK(f.releases.number() == 0);
    gate.open();
    f.releases.wait();
  }
  SECTION("with the last handle after it") {
    gate.open();
    f.client.sync().get();
    CHECK(f.releases.number() == 0);
    view.reset();
    f.releases.wait();
  }
  CHECK(content(f.client, result) == Values{1, 2, 3, 4});
}

TEMPLATE_TEST_CASE("Borrowed memory is released at the end of the device at the latest", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  f.client.sync().get();
  const auto gate = std::make_unique<typename TestType::Gate>(f.client);
  launch(f.client, gate->fill(f.handle, 5));
  gate->wait_until_entered();
  auto ended = std::async(std::launch::async, [&] { shutdown(f.device.device()); });
  CHECK(f.releases.number() == 0);
  gate->open();
  ended.get();
  f.releases.wait();
  f.handle = {};
  CHECK(f.releases.number() == 1);
  // A handle from before does not work with the device that is opened next.
  f.client = TestType::Client::load(f.device.device());
  const Handle next = f.client.borrow(f.memory.data(), bytes_of_four);
  CHECK(content(f.client, next).size() == 4);
}

TEMPLATE_TEST_CASE("What is not memory of the device is not borrowed", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  CHECK(refusal_of(f.client, nullptr, 16) == IoError::Kind::InvalidPointer);
  CHECK(refusal_of(f.client, static_cast<std::byte*>(f.memory.data()) + 4, 8) == IoError::Kind::Misaligned);
  CHECK(refusal_of(f.client, f.memory.data(), ~std::size_t{0}) == IoError::Kind::OutOfBounds);
  CHECK(content(f.client, f.handle) == Values{1, 2, 3, 4});
  shutdown(f.device.device());
  CHECK_THROWS_AS(f.client.borrow(f.memory.data(), 16, {}, [] { FAIL("it was refused"); }), CallError);
}

TEMPLATE_TEST_CASE("L14: borrowed memory is poisoned and healed like any other", "[foreign][poison]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  launch(f.client, TestType::fail_on(f.client, f.handle));
  CHECK(is_late_failure<TestType>(next_failure(f.client)));
  CHECK(f.handle.failure().has_value());
  const Handle result = upload(f.other, {0, 0, 0, 0});
  launch(f.other, TestType::plus_one(f.handle, result));
  CHECK(is_poisoned_by_late_failure<TestType>(next_failure(f.other)));
  CHECK(is_poisoned_by_late_failure<TestType>(failure_of_read(f.other, f.handle)));
  f.client.write(f.handle, Bytes::copy_of(Values{9, 9, 9, 9}));
  CHECK(content(f.client, f.handle) == Values{9, 9, 9, 9});
  CHECK_FALSE(f.handle.failure().has_value());
}

TEMPLATE_TEST_CASE("A graph keeps borrowed memory", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  const Handle result = upload(f.client, {0, 0, 0, 0});
  f.client.graph_prepare();
  launch(f.client, TestType::plus_one(f.handle, result));
  f.client.graph_start_capture();
  launch(f.client, TestType::plus_one(f.handle, result));
  {
    const auto graph = f.client.graph_stop_capture();
    f.client.write(f.handle, Bytes::copy_of(Values{5, 6, 7, 8}));
    graph.replay();
    CHECK(content(f.client, result) == Values{6, 7, 8, 9});
    f.handle = {};
    graph.replay();
    CHECK(content(f.client, result) == Values{6, 7, 8, 9});
    CHECK(f.releases.number() == 0);
  }
  f.releases.wait();
}

TEMPLATE_TEST_CASE("Memory cannot be borrowed in a capture", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  Releases releases;
  f.client.graph_prepare();
  f.client.graph_start_capture();
  const Handle refused = f.client.borrow(f.memory.data(), bytes_of_four, {}, releases.callback());
  CHECK_THROWS_AS(f.client.graph_stop_capture(), ServerError);
  releases.wait();
  CHECK(refused.failure().has_value());
}

TEMPLATE_TEST_CASE("A call of another library is one operation of its stream", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  const Handle result = upload(f.client, {0, 0, 0, 0});
  const auto seen = std::make_shared<std::promise<std::array<void*, 2>>>();
  const auto arguments = [&] {
    return KernelArguments{}.with_buffer(f.handle.offset_start(4), Access::Read).with_buffer(result);
  };
  const auto note = [seen](auto... stream_and_pointers) {
    const auto all = std::tuple(stream_and_pointers...);
    const std::span<void* const> pointers = std::get<sizeof...(stream_and_pointers) - 1>(all);
    seen->set_value({pointers[0], pointers[1]});
  };
  SECTION("with the addresses of its buffers") {
    if constexpr (std::is_same_v<TestType, HostBackend>) {
      f.client.call(arguments(), [note](std::span<void* const> pointers) { note(pointers); });
    } else {
      f.client.call(arguments(), [note](auto* stream, std::span<void* const> pointers) { note(stream, pointers); });
    }
    const auto pointers = seen->get_future().get();
    CHECK(pointers[0] == static_cast<std::byte*>(f.memory.data()) + 4);
    CHECK(reinterpret_cast<std::uintptr_t>(pointers[1]) == TestType::address(f.client.get_resource(result).resource));
  }
  SECTION("that fails if the function throws: what it should have written is poisoned") {
    const auto fail = [](auto&&...) { throw std::runtime_error("not today"); };
    f.client.call(arguments(), fail);
    CHECK(says(next_failure(f.client), "not today"));
    CHECK(result.failure().has_value());
    CHECK_FALSE(f.handle.failure().has_value());
    CHECK(says(failure_of_read(f.client, result), "not today"));
  }
  SECTION("that is refused if it would read poisoned memory") {
    launch(f.client, TestType::fail_on(f.client, f.handle));
    CHECK(is_late_failure<TestType>(next_failure(f.client)));
    const auto called = std::make_shared<std::atomic<bool>>(false);
    f.client.call(arguments(), [called](auto&&...) { called->store(true); });
    CHECK(is_poisoned_by_late_failure<TestType>(next_failure(f.client)));
    CHECK_FALSE(called->load());
    CHECK(result.failure().has_value());
  }
}

TEMPLATE_TEST_CASE("A quiet call and quiet run their function once", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  std::atomic<int> calls{0};
  f.client.call_quiet(KernelArguments{}.with_buffer(f.handle), [&](auto&&...) { calls.fetch_add(1); });
  CHECK(calls.load() == 1);
  // Not before what it waits for, wherever that is queued.
  typename TestType::Gate gate(f.other);
  launch(f.other, gate.fill(f.handle, 8));
  f.client.call_quiet(KernelArguments{}.with_buffer(upload(f.client, {1})), [&](auto&&...) { calls.fetch_add(1); });
  CHECK(calls.load() == 2);
  gate.open();
  CHECK(content(f.client, f.handle) == Values{8, 8, 8, 8});
  f.client.graph_prepare();
  f.client.graph_start_capture();
  CHECK_THROWS_AS(f.client.call_quiet(KernelArguments(), [](auto&&...) {}), ServerError);
  static_cast<void>(caught([&] { static_cast<void>(f.client.graph_stop_capture()); }));
  calls.store(1);
  CHECK(f.client.quiet([&] { return calls.load() + 1; }) == 2);
  f.client.device_handle().submit_blocking([&](auto&) {
    CHECK_THROWS_AS(f.client.quiet([] {}), CallError);
    CHECK_THROWS_AS(f.client.call_quiet(KernelArguments(), [](auto&&...) {}), CallError);
  });
}

TEST_CASE("A quiet call that finds no quiet moment throws with its caller's line", "[foreign]") {
  struct Busy : HostServer {
    [[nodiscard]] static std::shared_ptr<void> quiesce() {
      throw CollectiveError(CollectiveError::Kind::Timeout, "no moment was found", std::source_location());
    }
  };
  OpenDevice<HostBackend> device;
  const auto nothing = [](auto&&...) {};
  const auto site_of = [](const auto& call) {
    try {
      call();
    } catch (const CollectiveError& error) {
      CHECK(error.kind() == CollectiveError::Kind::Timeout);
      return error.site().line();
    }
    return std::source_location().line();
  };
  const auto here = std::source_location::current();
  using Nothing = decltype(nothing);
  CHECK(site_of([&] { device.client().quiet<Nothing&, Busy>(nothing, here); }) == here.line());
  CHECK(site_of([&] { device.client().call_quiet<Nothing&, Busy>({}, nothing, here); }) == here.line());
}

TEMPLATE_TEST_CASE("What was queued is issued when issued() says so", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  f.client.sync().get();
  typename TestType::Gate gate(f.client);
  launch(f.client, gate.fill(f.handle, 3));
  get_soon(f.client.issued());  // does not wait for the work itself
  gate.open();
  CHECK(content(f.client, f.handle) == Values{3, 3, 3, 3});
  f.client.graph_prepare();
  f.client.graph_start_capture();
  CHECK_THROWS_AS(get_soon(f.client.issued()), ServerError);
  static_cast<void>(caught([&] { static_cast<void>(f.client.graph_stop_capture()); }));
}

TEMPLATE_TEST_CASE("Borrowed memory is released after copies that run beside its stream", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  constexpr std::size_t bytes = std::size_t{8} << 20U;
  Borrowed<TestType> f;
  ForeignMemory<TestType> memory(f.device.device(), bytes);
  Releases releases;
  const Values values = counted(bytes / sizeof(std::uint32_t));
  Handle large = f.client.borrow(memory.data(), bytes, {}, releases.callback());
  f.client.write(large, Bytes::copy_of(values));
  auto read = f.client.read_async(std::vector<Handle>{large});
  large = {};
  releases.wait();
  CHECK(numbers(get_soon(std::move(read))[0]) == values);
}

TEMPLATE_TEST_CASE("Much memory is borrowed and released", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Borrowed<TestType> f;
  const auto released = std::make_shared<std::atomic<int>>(0);
  constexpr int count = 3000;
  std::deque<Handle> some;
  for (int i = 0; i < count; ++i) {
    some.push_back(f.client.borrow(f.memory.data(), bytes_of_four, {}, [released] { released->fetch_add(1); }));
    launch(f.client, TestType::fill(some.back(), static_cast<std::uint32_t>(i)));
    if (some.size() > 100) some.pop_front();
  }
  CHECK(content(f.client, some.back()) == Values(4, count - 1));
  some.clear();
  wait_until([&] { return released->load() == count; });
}

TEMPLATE_TEST_CASE("Each allocation of a borrowing may fail: the memory is released once", "[foreign]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const bool at_the_end = GENERATE(false, true);  // when the memory is dropped, or when it is borrowed
  Borrowed<TestType> f;
  f.client.sync().get();
  const auto& thread = f.client.device_handle();
  int failures = 0;
  for (int k = 0;; ++k) {
    INFO("allocation " << k);
    REQUIRE(k < 200);
    Releases releases;
    bool failed = false;
    const auto begin = [&] {
      thread.submit_blocking([k](auto&) {
        detail::RecycledMemory::free_cached();
        allocations_until_failure = k;
      });
    };
    const auto end = [&] {
      failed = thread.submit_blocking([](auto&) { return std::exchange(allocations_until_failure, -1) < 0; });
    };
    if (!at_the_end) begin();
    Handle handle = f.client.borrow(f.memory.data(), bytes_of_four, {}, releases.callback());
    if (!at_the_end) end();
    typename TestType::Gate gate(f.client);
    if (at_the_end) {
      launch(f.client, gate.fill(handle, 4));
      gate.wait_until_entered();
      begin();
    }
    handle = {};
    reach(f.client);
    if (at_the_end) end();
    gate.open();
    const bool refused = next_failure(f.client) != nullptr;
    CHECK(refused == (failed && !at_the_end));
    releases.wait();
    failures += failed ? 1 : 0;
    if (!failed) break;
  }
  CHECK(failures >= (at_the_end ? 1 : 2));
}

TEMPLATE_TEST_CASE("Collectives use borrowed memory", "[foreign]", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  // By each of the algorithms, on GPUs.
  const auto count = GENERATE(as<std::size_t>(), 300, 3'000'000);
  std::deque<ForeignMemory<typename TestType::Backend>> memory;
  std::vector<Handle> handles;
  Releases releases;
  fleet.for_each([&](std::size_t rank, const auto& client) {
    memory.emplace_back(client.device_id(), count * sizeof(std::int32_t));
    handles.push_back(client.borrow(memory.back().data(), count * sizeof(std::int32_t), {},
                                    rank == 0 ? releases.callback() : BorrowedMemory::Release()));
    client.write(handles.back(), Bytes::copy_of(numbers_of(rank, count)));
    client.ensure_init_collective(all);
  });
  fleet.for_each([&](std::size_t rank, const auto& client) {
    client.all_reduce(handles[rank], handles[rank], ElementType::I32, all);
    if (rank == 0) handles.front() = {};
  });
  releases.wait();
  CHECK(read_soon(fleet[1], handles.back()) == sum_of(2, count));
  const Handle sum = fleet[0].borrow(memory.front().data(), count * sizeof(std::int32_t));
  CHECK(read_soon(fleet[0], sum) == sum_of(2, count));
  const Handle received = fleet[0].to_client(sum, fleet[1], ElementType::I32);
  CHECK(read_soon(fleet[1], received) == sum_of(2, count));
  fleet[1].write(handles.back(), Bytes::copy_of(numbers_of(1, count)));
  fleet[1].send(handles.back(), ElementType::I32, fleet.devices()[0]);
  fleet[0].receive(sum, ElementType::I32, fleet.devices()[1]);
  CHECK(read_soon(fleet[0], sum) == numbers_of(1, count));
  fleet.for_each([](std::size_t, const auto& client) { settle(client); });
  handles.clear();
  shutdown_all();  // before the memory goes
}
