#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <numeric>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

using namespace cox::test;
using cox::Access;
using cox::Bytes;
using cox::CubeCount;
using cox::Handle;
using cox::HostClient;
using cox::KernelArguments;
using cox::MemoryLayoutDescriptor;

namespace {

std::vector<std::uint32_t> counted(std::size_t count) {
  std::vector<std::uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0U);
  return values;
}

}  // namespace

TEST_CASE("What is uploaded comes back") {
  OpenHost host;
  const auto values = counted(1000);
  REQUIRE(numbers(host.client().read_one(upload(host.client(), values))) == values);
  const Handle from_slice = host.client().create_from_slice(std::span<const std::uint32_t>(values));
  REQUIRE(numbers(host.client().read_one(from_slice.offset_start(8).offset_end(4 * 990))) ==
          std::vector<std::uint32_t>{2, 3, 4, 5, 6, 7, 8, 9});
  const auto both = host.client().read({from_slice, from_slice.offset_end(3996)});
  REQUIRE(both.size() == 2);
  REQUIRE(both[0].size() == 4000);
  REQUIRE(numbers(both[1]) == std::vector<std::uint32_t>{0});
}

TEST_CASE("A tensor is padded on the device and dense on the host") {
  OpenHost host;
  const auto values = counted(15);
  const auto layout = host.client().create_tensor(Bytes::copy_of(values), {3, 5}, 4);
  REQUIRE(layout.strides == cox::Strides{8, 1});
  REQUIRE(layout.memory.size_in_used() == 96);
  REQUIRE(numbers(host.client().read_one_tensor(layout.copy_descriptor({3, 5}, 4))) == values);
  const auto padded = numbers(host.client().read_one(layout.memory));
  REQUIRE(padded[8] == 5);
  host.client().write_tensor(layout.copy_descriptor({3, 5}, 4), Bytes::zeroed(60));
  REQUIRE(host.client().read_tensor({layout.copy_descriptor({3, 5}, 4)})[0] == Bytes::zeroed(60));
}

TEST_CASE("Tensors made together share an allocation and keep their own content") {
  OpenHost host;
  std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> tensors;
  tensors.emplace_back(MemoryLayoutDescriptor::contiguous({3}, 4), Bytes::copy_of(std::vector<std::uint32_t>{1, 2, 3}));
  tensors.emplace_back(MemoryLayoutDescriptor::optimized({2, 3}, 4), Bytes::copy_of(counted(6)));
  const auto layouts = host.client().create_tensors(std::move(tensors));
  REQUIRE(numbers(host.client().read_one(layouts[0].memory)) == std::vector<std::uint32_t>{1, 2, 3});
  REQUIRE(numbers(host.client().read_one_tensor(layouts[1].copy_descriptor({2, 3}, 4))) == counted(6));
  REQUIRE(host.client().memory_usage().number_allocs == 1);
  REQUIRE(host.client().empty_tensors({MemoryLayoutDescriptor::optimized({2, 3}, 4)}).size() == 1);
}

TEST_CASE("Empty buffers, empty tensors and rank 0 work as any other") {
  OpenHost host;
  const HostClient& client = host.client();
  REQUIRE(client.read_one(client.empty(0)).empty());
  REQUIRE(client.read_one(client.create(Bytes{})).empty());
  const auto empty = client.create_tensor(Bytes{}, {2, 0}, 4);
  REQUIRE(client.read_one_tensor(empty.copy_descriptor({2, 0}, 4)).empty());
  const auto scalar = client.create_tensor(Bytes::copy_of(std::vector<double>{2.5}), {}, 8);
  REQUIRE(client.read_one_tensor(scalar.copy_descriptor({}, 8)).to_vector<double>() == std::vector<double>{2.5});
  REQUIRE(client.read(std::vector<Handle>{}).empty());
  client.launch(fill_kernel(), CubeCount::single(),
                KernelArguments{}.with_buffer(client.empty(0)).with_scalar(std::uint32_t{1}));
  client.sync().get();
}

TEST_CASE("Kernels run for every unit, in the order of their stream") {
  OpenHost host;
  const HostClient& client = host.client();
  const auto values = counted(1000);
  const Handle data = upload(client, values);
  for (int i = 0; i < 3; ++i)
    client.launch(multiply_add(), CubeCount::of_1d(32),
                  KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{3}).with_scalar(std::uint32_t{1}));
  auto expected = values;
  for (auto& value : expected) value = 27 * value + 13;
  REQUIRE(numbers(client.read_one(data)) == expected);
}

TEST_CASE("A cube count without cubes is no work at all, static or dynamic") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {7});
  const auto fill = [&](CubeCount count) {
    client.launch(fill_kernel(), std::move(count), KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{1}));
  };
  fill({0, 1, 1});
  client.launch({"null", {}, 5, nullptr}, {1, 0, 1}, {});
  fill(CubeCount::dynamic(upload(client, {1, 1, 0})));
  REQUIRE(numbers(client.read_one(data)) == std::vector<std::uint32_t>{7});
}

TEST_CASE("A dynamic cube count is read when it is the kernel's turn, not before") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle count = upload(client, {0, 0, 0});
  const Handle data = upload(client, std::vector<std::uint32_t>(64));
  Gate gate;
  client.launch(gate.kernel(1,
                            [](const cox::KernelContext& context) {
                              context.buffer<std::uint32_t>(0)[0] = 2;
                              context.buffer<std::uint32_t>(0)[1] = 1;
                              context.buffer<std::uint32_t>(0)[2] = 1;
                            }),
                CubeCount::single(), KernelArguments{}.with_buffer(count));
  client.launch(multiply_add(), CubeCount::dynamic(count),
                KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{1}).with_scalar(std::uint32_t{5}));
  gate.open();
  REQUIRE(numbers(client.read_one(data)) == std::vector<std::uint32_t>(64, 5));
}

TEST_CASE("Allocation, write and launch wait neither for the device thread nor for the stream") {
  OpenHost host;
  HostClient& client = host.client();
  Gate gate;
  client.launch(gate.kernel(0), CubeCount::single(), {});
  gate.wait_until_entered();
  std::promise<void> inside;
  std::promise<void> leave;
  std::thread occupant([&] {
    client.exclusive([&] {
      inside.set_value();
      leave.get_future().wait();
    });
  });
  inside.get_future().wait();
  // The device thread and the stream are both held up; all this returns nevertheless.
  const Handle data = client.empty(40);
  client.write(data, Bytes::zeroed(40));
  client.launch(multiply_add(), CubeCount::single(),
                KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{1}).with_scalar(std::uint32_t{2}));
  auto contents = client.read_async(std::vector<Handle>{data});
  auto done = client.sync();
  REQUIRE_FALSE(contents.ready());
  leave.set_value();
  gate.open();
  occupant.join();
  REQUIRE(numbers(contents.get()[0]) == std::vector<std::uint32_t>(10, 2));
  done.get();
}

TEST_CASE("The memory report names the lines that hold the memory, and cleanup gives back what is free") {
  OpenHost host({.memory_capacity = std::size_t{64} << 20U});
  const HostClient& client = host.client();
  const auto line = std::source_location::current().line() + 1;
  Handle kept = client.empty(std::size_t{1} << 20U);
  Handle dropped = client.empty(std::size_t{16} << 20U);
  dropped = {};
  client.sync().get();
  const std::string here = "host_server_test.cpp:" + std::to_string(line);
  cox::MemoryReport report = client.memory_report();
  REQUIRE(report.by_label.at(here) == std::size_t{1} << 20U);
  REQUIRE(report.usage.bytes_reserved >= std::size_t{17} << 20U);
  client.memory_cleanup();
  report = client.memory_report();
  REQUIRE(report.usage.bytes_reserved < std::size_t{2} << 20U);
  REQUIRE(report.usage.bytes_in_use == std::size_t{1} << 20U);
}

TEST_CASE("Out of memory says who has it") {
  OpenHost host({.memory_capacity = std::size_t{8} << 20U});
  const HostClient& client = host.client();
  const auto line = std::source_location::current().line() + 1;
  const Handle most = client.empty(std::size_t{6} << 20U);
  const Handle too_much = client.empty(std::size_t{4} << 20U);
  try {
    client.sync().get();
    FAIL("the second allocation cannot succeed");
  } catch (const cox::ServerError& error) {
    REQUIRE(mentions(error.what(), {"4194304 B", "host_server_test.cpp:" + std::to_string(line), "biggest owners"}));
  }
}

TEST_CASE("The device thread never runs kernels: it answers while one runs") {
  OpenHost host;
  Gate gate;
  host.client().launch(gate.kernel(0), CubeCount::single(), {});
  gate.wait_until_entered();
  REQUIRE(host.client().memory_usage().number_allocs == 0);
  host.client().flush();
  gate.open();
}

TEST_CASE("A buffer used on another stream is read after its writer, and written after its readers") {
  OpenHost host;
  const HostClient& client = host.client();
  const HostClient other = host.on_new_stream();
  const Handle data = upload(client, {1});
  const Handle seen = client.empty(4);

  // Read after write: the copy on `other` waits for the gated write on `client`.
  Gate write;
  client.launch(write.kernel(1, [](const auto& context) { context.template buffer<std::uint32_t>(0)[0] = 2; }),
                CubeCount::single(), KernelArguments{}.with_buffer(data));
  other.launch(copy_kernel(), CubeCount::single(), KernelArguments{}.with_buffer(data, Access::Read).with_buffer(seen));
  auto copied = other.read_async(std::vector<Handle>{seen});
  write.wait_until_entered();
  REQUIRE_FALSE(copied.ready());
  write.open();
  REQUIRE(numbers(copied.get()[0]) == std::vector<std::uint32_t>{2});

  // Write after read: the fill on `client` waits for the gated reader on `other`.
  Gate read;
  std::uint32_t read_value = 0;
  other.launch(
      read.kernel(1, [&](const auto& context) { read_value = context.template buffer<const std::uint32_t>(0)[0]; }),
      CubeCount::single(), KernelArguments{}.with_buffer(data, Access::Read));
  read.wait_until_entered();
  client.launch(fill_kernel(), CubeCount::single(), KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{3}));
  auto filled = client.sync();
  REQUIRE_FALSE(filled.ready());
  read.open();
  filled.get();
  REQUIRE(read_value == 2);

  // Write after write: the last of both is what stays.
  Gate slow;
  client.launch(slow.kernel(1, [](const auto& context) { context.template buffer<std::uint32_t>(0)[0] = 4; }),
                CubeCount::single(), KernelArguments{}.with_buffer(data));
  other.write(data, Bytes::copy_of(std::vector<std::uint32_t>{5}));
  slow.open();
  REQUIRE(numbers(client.read_one(data)) == std::vector<std::uint32_t>{5});
}

TEST_CASE("Readers on different streams run side by side") {
  OpenHost host;
  const HostClient& client = host.client();
  const HostClient other = host.on_new_stream();
  const Handle data = upload(client, {1});
  Gate first;
  Gate second;
  client.launch(first.kernel(1), CubeCount::single(), KernelArguments{}.with_buffer(data, Access::Read));
  other.launch(second.kernel(1), CubeCount::single(), KernelArguments{}.with_buffer(data, Access::Read));
  first.wait_until_entered();
  second.wait_until_entered();  // while the first still runs
  first.open();
  second.open();
  client.sync().get();
  other.sync().get();
}

TEST_CASE("Many streams that write one buffer in turn lose nothing") {
  OpenHost host({.device_count = 1, .threads_per_device = 3});
  const HostClient& client = host.client();
  std::vector<HostClient> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(host.on_new_stream());
  const Handle data = upload(client, counted(64));
  auto expected = counted(64);
  for (std::uint32_t i = 0; i < 400; ++i) {
    streams[i % streams.size()].launch(
        multiply_add(), CubeCount::of_1d(2),
        KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{3}).with_scalar(i));
    for (auto& value : expected) value = value * 3 + i;
  }
  REQUIRE(numbers(client.read_one(data)) == expected);
}

TEST_CASE("Clients on many threads share a device") {
  OpenHost host;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const HostClient client = host.client();
      for (std::uint32_t i = 0; i < 50; ++i) {
        const Handle data = upload(client, {t, i});
        client.launch(multiply_add(), CubeCount::single(),
                      KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{2}).with_scalar(std::uint32_t{1}));
        if (numbers(client.read_one(data)) == std::vector<std::uint32_t>{2 * t + 1, 2 * i + 1}) ++right;
      }
    });
  for (auto& thread : threads) thread.join();
  REQUIRE(right == 200);
}

TEST_CASE("Reads and syncs complete Asio tokens") {
  OpenHost host;
  const Handle data = upload(host.client(), {9});
  const std::vector<Handle> handles{data};
  REQUIRE(numbers(host.client().read_async(handles, boost::asio::use_future).get()[0]) ==
          std::vector<std::uint32_t>{9});
  host.client().sync(boost::asio::use_future).get();
  std::promise<std::size_t> size;
  host.client().read_async(handles,
                           [&](std::exception_ptr, std::vector<Bytes> bytes) { size.set_value(bytes[0].size()); });
  REQUIRE(size.get_future().get() == 4);
}

TEST_CASE("L11: memory is nobody else's until the work that was given it has run, however early handles are dropped") {
  OpenHost host({.device_count = 1, .threads_per_device = 2, .memory_capacity = 8192});
  const HostClient& client = host.client();
  const HostClient other = host.on_new_stream();
  Gate gate;
  std::promise<std::uint32_t> seen;
  {
    const Handle data = upload(client, std::vector<std::uint32_t>(1000, 1));
    client.launch(gate.kernel(1,
                              [&seen](const auto& context) {
                                std::uint32_t sum = 0;
                                for (const auto& value : context.template buffer<std::uint32_t>(0)) sum += value;
                                seen.set_value(sum);
                              }),
                  CubeCount::single(), KernelArguments{}.with_buffer(data));
    (void)client.read_async(std::vector<Handle>{data});
  }
  gate.wait_until_entered();
  REQUIRE(client.memory_usage().number_allocs == 0);
  REQUIRE(client.memory_report().waiting >= 4000);
  // One of these gets the memory that the kernel still reads: its first use waits.
  const Handle first = upload(other, std::vector<std::uint32_t>(1000, 2));
  const Handle second = upload(other, std::vector<std::uint32_t>(1000, 3));
  const auto contents = other.read_async(std::vector<Handle>{first, second});
  REQUIRE_FALSE(contents.ready());
  gate.open();
  REQUIRE(seen.get_future().get() == 1000);
  contents.wait();
  REQUIRE(client.memory_usage().peak_bytes_in_use == 8000);
}

TEST_CASE("Device memory has a capacity, and is there again when it was given back") {
  OpenHost host({.device_count = 1, .threads_per_device = 1, .memory_capacity = 4096});
  const HostClient& client = host.client();
  for (int i = 0; i < 3; ++i) {
    const Handle all = client.empty(4096);
    client.sync().get();
  }
  REQUIRE(client.properties().memory.capacity == 4096);
}

TEST_CASE("A client knows its device without asking it") {
  OpenHost host({.device_count = 3, .threads_per_device = 1}, 2);
  const HostClient& client = host.client();
  REQUIRE(client.device_id() == cox::DeviceId{.type = 0, .index = 2});
  REQUIRE(client.enumerate_devices(0).size() == 3);
  REQUIRE(client.enumerate_devices(1).empty());
  REQUIRE(client.device_count(0) == 3);
  REQUIRE(client.info().threads == 1);
  REQUIRE(client.features().contains(cox::Feature::DynamicCubeCount));
  REQUIRE_FALSE(client.features().contains(cox::Feature::Graphs));
}

TEST_CASE("A ready server may be registered, once, and moved over a live one") {
  const cox::DeviceId device{.type = 0, .index = 3};
  cox::HostServer server(device);
  server = cox::HostServer(device);
  const HostClient client = HostClient::init(device, std::move(server));
  REQUIRE(numbers(client.read_one(upload(client, {4}))) == std::vector<std::uint32_t>{4});
  REQUIRE(kind_of<cox::CallError>([&] { (void)HostClient::init(device, cox::HostServer(device)); }) ==
          cox::CallError::Kind::AlreadyRegistered);
  cox::shutdown(device);
}
