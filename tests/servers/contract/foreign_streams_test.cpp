#if COX_CUDA_TESTS

// Streams of other owners: borrow with a stream, ready_after, ready_on, use_stream. GPUs, and the driver that stands
// in.

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/foreign_memory.hpp>
#include <coxswain/tests/servers/contract/poison_contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using Values = std::vector<std::uint32_t>;

template <class Backend>
struct Owner {
  OpenDevice<Backend> device;
  typename Backend::Client& client = device.client();
  ForeignMemory<Backend> memory{device.device(), 16};
  ForeignStream stream{device.device()};

  Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() { shutdown(device.device()); }
  [[nodiscard]] CUdeviceptr address(const Handle& handle) const {
    return static_cast<CUdeviceptr>(Backend::address(client.get_resource(handle).resource));
  }
};

bool is_ready(const Future<void>& future) { return future.wait_for(std::chrono::milliseconds(0)); }

}  // namespace

TEMPLATE_TEST_CASE("Borrowed memory waits for its owner's stream", "[foreign]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  f.stream.hold();
  f.stream.word(1) = 42;
  f.stream.copy_to_device(f.memory.address(), 1);
  const Handle handle = f.client.borrow(f.memory.data(), 4, f.stream.native());
  const Handle copied = f.client.empty(4);
  launch(f.client, TestType::copy(handle, copied));
  get_soon(f.client.issued());
  f.stream.open();
  CHECK(content(f.client, copied) == Values{42});

  // What the owner writes later, and says so.
  f.stream.hold();
  f.stream.word(2) = 43;
  f.stream.copy_to_device(f.memory.address(), 2);
  f.client.ready_after(handle, f.stream.native());
  auto read = f.client.read_async(std::vector<Handle>{handle});
  get_soon(f.client.issued());
  f.stream.open();
  CHECK(numbers(get_soon(std::move(read))[0]) == Values{43});
}

TEMPLATE_TEST_CASE("Borrowed memory waits for its owner's event", "[foreign]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  detail::DriverEvent event;
  const detail::CurrentContext current(f.stream.context());
  COX_CUDA_TRY(event_create(event.out(), CU_EVENT_DISABLE_TIMING));
  f.stream.hold();
  f.stream.word(1) = 42;
  f.stream.copy_to_device(f.memory.address(), 1);
  COX_CUDA_TRY(event_record(event.get(), f.stream.native()));
  const Handle handle = f.client.borrow(f.memory.data(), 4, event.get());
  const Handle copied = f.client.empty(4);
  launch(f.client, TestType::copy(handle, copied));
  get_soon(f.client.issued());
  f.stream.open();
  CHECK(content(f.client, copied) == Values{42});
}

TEMPLATE_TEST_CASE("A stream of another owner waits for queued work", "[foreign]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  const Handle handle = upload(f.client, {1});
  const CUdeviceptr address = f.address(handle);
  f.client.sync().get();

  // Its wait is given to the driver while the work is still held up.
  typename TestType::Gate gate(f.client);
  launch(f.client, gate.fill(handle, 7));
  get_soon(f.client.ready_on(handle, f.stream.native()));
  f.stream.copy_to_host(1, address);
  gate.open();
  f.stream.sync();
  CHECK(f.stream.word(1) == 7);

  // Without the future the owner may be earlier than the launch.
  std::promise<void> go;
  std::promise<void> held;
  f.client.device_handle().submit([&](auto&) {
    held.set_value();
    go.get_future().wait();
  });
  held.get_future().wait();
  launch(f.client, TestType::fill(handle, 9));
  auto ready = f.client.ready_on(handle, f.stream.native());
  CHECK_FALSE(is_ready(ready));
  f.stream.copy_to_host(2, address);
  f.stream.sync();
  CHECK(f.stream.word(2) == 7);
  go.set_value();
  get_soon(std::move(ready));
  f.stream.copy_to_host(3, address);
  f.stream.sync();
  CHECK(f.stream.word(3) == 9);
}

TEMPLATE_TEST_CASE("Work waits for what the owner of a stream does with its memory", "[foreign]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  const Handle handle = upload(f.client, {1});
  const CUdeviceptr address = f.address(handle);
  const Handle copied = upload(f.client, {0});
  f.client.sync().get();
  // The owner writes after a reader that is still held up, and the library reads after the owner.
  typename TestType::Gate gate(f.client);
  launch(f.client, gate.copy(handle, copied));
  gate.wait_until_entered();
  get_soon(f.client.ready_on(handle, f.stream.native(), Access::Write));
  f.stream.word(1) = 6;
  f.stream.copy_to_device(address, 1);
  f.client.ready_after(handle, f.stream.native());
  auto read = f.device.on_new_stream().read_async(std::vector<Handle>{handle});
  gate.open();
  CHECK(numbers(get_soon(std::move(read))[0]) == Values{6});
  CHECK(content(f.client, copied) == Values{1});
}

TEMPLATE_TEST_CASE("L14: ready_on of poisoned memory fails", "[foreign][poison]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  const Handle handle = upload(f.client, {1, 2, 3, 4});
  launch(f.client, TestType::fail_on(f.client, handle));
  CHECK(is_late_failure<TestType>(next_failure(f.client)));
  std::exception_ptr error;
  try {
    get_soon(f.client.ready_on(handle, f.stream.native()));
  } catch (...) {
    error = std::current_exception();
  }
  CHECK(is_poisoned_by_late_failure<TestType>(error));
}

TEMPLATE_TEST_CASE("Work of a used stream is in order with what its owner queues", "[foreign]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  const StreamId id = f.client.use_stream(f.stream.native());
  CHECK(f.client.use_stream(f.stream.native()) == id);
  f.client.end_use(id);  // one of two
  auto used = f.client;
  used.set_stream(id);
  const Handle handle = upload(used, {0});
  const CUdeviceptr address = f.address(handle);
  // The work of a stand-in for the driver takes longer.
  const std::uint32_t rounds = settings().get<std::string>("cuda.driver").empty() ? 100'000 : 500;
  constexpr std::uint32_t words = ForeignStream::words;
  for (std::uint32_t i = 1; i < rounds; ++i) {
    launch(used, TestType::fill(handle, i));
    get_soon(used.issued());
    const std::uint32_t place = i % words;
    f.stream.copy_to_host(place, address);
    if (place != words - 1 && i + 1 != rounds) continue;
    f.stream.sync();
    for (std::uint32_t k = place == i ? 1 : 0; k <= place; ++k) REQUIRE(f.stream.word(k) == i - place + k);
  }
  // Other streams wait for it, as for any stream.
  f.stream.hold();
  launch(used, TestType::fill(handle, 77));
  auto read = f.client.read_async(std::vector<Handle>{handle});
  f.stream.open();
  CHECK(numbers(get_soon(std::move(read))[0]) == Values{77});
  used.end_use(id);
  CHECK_THROWS_AS(used.end_use(id), ServerError);
  CHECK(f.client.use_stream(f.stream.native()) != id);
}

TEMPLATE_TEST_CASE("Work that runs beside a used stream is in order with what its owner queues", "[foreign]",
                   CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  constexpr std::size_t count = std::size_t{2} << 20U;  // 8 MiB: copied by the copy threads
  Owner<TestType> f;
  const StreamId id = f.client.use_stream(f.stream.native());
  auto used = f.client;
  used.set_stream(id);
  const Handle handle = upload(used, Values(count, 1));
  const CUdeviceptr last = f.address(handle) + (count - 1) * sizeof(std::uint32_t);
  for (std::uint32_t i = 2; i < 6; ++i) {
    used.write(handle, Bytes::copy_of(Values(count, i)));
    get_soon(used.issued());
    f.stream.copy_to_host(i, last);
    f.stream.sync();
    CHECK(f.stream.word(i) == i);
    f.stream.hold();
    f.stream.word(1) = 100 * i;
    f.stream.copy_to_device(last, 1);
    auto read = used.read_async(std::vector<Handle>{handle});
    reach(used);
    f.stream.open();
    CHECK(numbers(get_soon(std::move(read))[0]).back() == 100 * i);
  }
  used.end_use(id);
}

TEMPLATE_TEST_CASE("Collectives of a used stream are in order with what its owner queues", "[foreign]", CudaFleet) {
  COX_REQUIRE_FLEET(TestType, 2);
  ForeignStream stream({.type = cuda_device_type, .index = 0});  // goes after the devices, also if the test fails
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  const auto count = GENERATE(as<std::size_t>(), 300, 3'000'000);
  auto used = fleet[0];
  const StreamId id = used.use_stream(stream.native());
  used.set_stream(id);
  const Handle sum = used.create(Bytes::copy_of(Numbers(count, 0)));
  const Handle other = fleet[1].create(Bytes::copy_of(Numbers(count, 0)));
  const auto last = static_cast<CUdeviceptr>(CudaBackend::address(used.get_resource(sum).resource)) +
                    (count - 1) * sizeof(std::int32_t);
  fleet.for_each([&](std::size_t, const auto& client) { client.ensure_init_collective(all); });
  const auto all_reduce = [&] {
    used.all_reduce(sum, sum, ElementType::I32, all);
    fleet[1].all_reduce(other, other, ElementType::I32, all);
  };
  all_reduce();  // loads its code, which waits for running kernels
  for (const auto& client : {used, fleet[1]}) settle(client);
  used.write(sum, Bytes::copy_of(Numbers(count, 1)));
  fleet[1].write(other, Bytes::copy_of(Numbers(count, 2)));
  for (const auto& client : {used, fleet[1]}) settle(client);
  // The owner writes first; the rank takes part in the sum when that is done.
  stream.hold();
  stream.word(1) = 50;
  stream.copy_to_device(last, 1);
  typename TestType::Hold hold;
  hold.launch(fleet[1]);
  all_reduce();
  stream.open();
  get_soon(used.issued());
  stream.copy_to_host(2, last);
  hold.open();
  stream.sync();
  CHECK(stream.word(2) == 52);
  CHECK(read_soon(fleet[1], other).back() == 52);
  used.end_use(id);
}

TEMPLATE_TEST_CASE("end_use throws the failures of the stream", "[foreign]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  {
    ForeignStream stream(f.device.device());
    const StreamId id = f.client.use_stream(stream.native());
    auto used = f.client;
    used.set_stream(id);
    const Handle handle = upload(used, {0, 0, 0, 0});
    launch(used, TestType::fail_on(used, handle));
    CHECK_THROWS_AS(f.client.end_use(id), ServerError);
    f.client.end_use(id);
  }
  // Many, one after the other: each takes the place of one before.
  for (int i = 0; i < 100; ++i) {
    ForeignStream stream(f.device.device());
    const StreamId id = f.client.use_stream(stream.native());
    auto used = f.client;
    used.set_stream(id);
    const Handle handle = upload(used, {0});
    launch(used, TestType::fill(handle, static_cast<std::uint32_t>(i)));
    REQUIRE(content(f.client, handle) == Values{static_cast<std::uint32_t>(i)});
    f.client.end_use(id);
  }
}

TEMPLATE_TEST_CASE("Streams that cannot be used are refused", "[foreign]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  CHECK_THROWS_AS(f.client.use_stream(CU_STREAM_PER_THREAD), ServerError);
  CHECK_THROWS_AS(f.client.borrow(f.memory.data(), 4, NativeCudaEvent()), ServerError);
  {
    const detail::CurrentContext current(f.stream.context());
    COX_CUDA_TRY(stream_begin_capture(f.stream.native(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }
  const auto kind_of = [](auto&& f) {
    try {
      f();
    } catch (const ServerError& error) {
      return error.kind();
    }
    return ServerError::Kind::Generic;
  };
  CHECK(kind_of([&] { static_cast<void>(f.client.use_stream(f.stream.native())); }) == ServerError::Kind::Graph);
  CHECK(kind_of([&] { static_cast<void>(f.client.borrow(f.memory.data(), 4, f.stream.native())); }) ==
        ServerError::Kind::Graph);
  const Handle handle = upload(f.client, {1});
  CHECK(kind_of([&] { get_soon(f.client.ready_on(handle, f.stream.native())); }) == ServerError::Kind::Graph);
  CHECK(kind_of([&] { f.client.ready_after(handle, f.stream.native()); }) == ServerError::Kind::Graph);
  {
    const detail::CurrentContext current(f.stream.context());
    CUgraph graph = nullptr;
    COX_CUDA_TRY(stream_end_capture(f.stream.native(), &graph));
    if (graph != nullptr) COX_CUDA_TRY(graph_destroy(graph));
  }
  // 64 at a time.
  std::vector<std::unique_ptr<ForeignStream>> streams;
  for (int i = 0; i < 64; ++i) {
    streams.push_back(std::make_unique<ForeignStream>(f.device.device()));
    static_cast<void>(f.client.use_stream(streams.back()->native()));
  }
  CHECK(kind_of([&] { static_cast<void>(f.client.use_stream(f.stream.native())); }) == ServerError::Kind::Validation);
  CHECK(content(f.client, handle) == Values{1});
  shutdown(f.device.device());  // before the streams go
}

TEMPLATE_TEST_CASE("Memory that is not an allocation of this device is not borrowed", "[foreign]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Owner<TestType> f;
  const auto kind_of = [&](void* pointer, std::size_t bytes) {
    try {
      static_cast<void>(f.client.borrow(pointer, bytes));
    } catch (const IoError& error) {
      return error.kind();
    }
    return IoError::Kind::NotFound;
  };
  CHECK(kind_of(f.memory.data(), 17) == IoError::Kind::OutOfBounds);
  alignas(16) std::uint32_t host_word[4]{};
  CHECK(kind_of(host_word, 16) == IoError::Kind::InvalidPointer);
  CHECK(kind_of(&f.stream.word(0), 16) == IoError::Kind::InvalidPointer);
  void* const gone = f.memory.data();
  f.memory.reset();
  CHECK(kind_of(gone, 16) == IoError::Kind::InvalidPointer);
  if (!TestType::missing_devices(2).empty()) return;
  ForeignMemory<TestType> elsewhere({.type = cuda_device_type, .index = 1}, 16);
  CHECK(kind_of(elsewhere.data(), 16) == IoError::Kind::WrongDevice);
  ForeignStream other({.type = cuda_device_type, .index = 1});
  CHECK_THROWS_AS(f.client.use_stream(other.native()), ServerError);
}

#endif
