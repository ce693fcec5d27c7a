#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/memory/memory_report.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::Handle;
using cox::MemoryLayoutDescriptor;

TEMPLATE_TEST_CASE("What is uploaded comes back", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto values = counted(1000);
  auto modifiable = values;
  REQUIRE(numbers(device.client().read_one(upload(device.client(), values))) == values);
  const Handle from_slice = device.client().create_from_slice(std::span<const std::uint32_t>(values));
  REQUIRE(numbers(device.client().read_one(from_slice.offset_start(8).offset_end(4 * 990))) ==
          std::vector<std::uint32_t>{2, 3, 4, 5, 6, 7, 8, 9});
  const std::span<std::uint32_t> part = std::span(modifiable).first(2);
  for (const Handle& same : {device.client().create_from_slice(part), device.client().create_from_slice_pinned(part)})
    REQUIRE(numbers(device.client().read_one(same)) == std::vector<std::uint32_t>{0, 1});
  REQUIRE(numbers(device.client().read_one(device.client().create_from_slice(values))) == values);
  const auto tensor = device.client().create_tensor_from_slice(values, {1000}, 4);
  REQUIRE(numbers(device.client().read_one_tensor(tensor.copy_descriptor({1000}, 4))) == values);
  const auto both = device.client().read({from_slice, from_slice.offset_end(3996)});
  REQUIRE(both.size() == 2);
  REQUIRE(both[0].size() == 4000);
  REQUIRE(numbers(both[1]) == std::vector<std::uint32_t>{0});
}

TEMPLATE_TEST_CASE("A tensor is padded on the device and dense on the host", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto values = counted(15);
  const auto layout = device.client().create_tensor(Bytes::copy_of(values), {3, 5}, 4);
  REQUIRE(layout.strides == cox::Strides{8, 1});
  REQUIRE(layout.memory.size_in_used() == 96);
  REQUIRE(numbers(device.client().read_one_tensor(layout.copy_descriptor({3, 5}, 4))) == values);
  const auto padded = numbers(device.client().read_one(layout.memory));
  REQUIRE(padded[8] == 5);
  device.client().write_tensor(layout.copy_descriptor({3, 5}, 4), Bytes::zeroed(60));
  REQUIRE(device.client().read_tensor({layout.copy_descriptor({3, 5}, 4)})[0] == Bytes::zeroed(60));
}

TEMPLATE_TEST_CASE("Tensors made together share an allocation and keep their own content", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> tensors;
  tensors.emplace_back(MemoryLayoutDescriptor::contiguous({3}, 4), Bytes::copy_of(std::vector<std::uint32_t>{1, 2, 3}));
  tensors.emplace_back(MemoryLayoutDescriptor::optimized({2, 3}, 4), Bytes::copy_of(counted(6)));
  const auto layouts = device.client().create_tensors(std::move(tensors));
  REQUIRE(numbers(device.client().read_one(layouts[0].memory)) == std::vector<std::uint32_t>{1, 2, 3});
  REQUIRE(numbers(device.client().read_one_tensor(layouts[1].copy_descriptor({2, 3}, 4))) == counted(6));
  REQUIRE(device.client().memory_usage().number_allocs == 1);
  REQUIRE(device.client().empty_tensors({MemoryLayoutDescriptor::optimized({2, 3}, 4)}).size() == 1);
}

TEMPLATE_TEST_CASE("Empty buffers, empty tensors and rank 0 work as any other", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  REQUIRE(client.read_one(client.empty(0)).empty());
  REQUIRE(client.read_one(client.create(Bytes{})).empty());
  const auto empty = client.create_tensor(Bytes{}, {2, 0}, 4);
  REQUIRE(client.read_one_tensor(empty.copy_descriptor({2, 0}, 4)).empty());
  const auto scalar = client.create_tensor(Bytes::copy_of(std::vector<double>{2.5}), {}, 8);
  REQUIRE(client.read_one_tensor(scalar.copy_descriptor({}, 8)).template to_vector<double>() ==
          std::vector<double>{2.5});
  REQUIRE(client.read(std::vector<Handle>{}).empty());
  launch(client, TestType::fill(client.empty(0), 1));
  client.sync().get();
}

TEMPLATE_TEST_CASE("Allocation, write and launch wait neither for the device thread nor for the stream", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  auto& client = device.client();
  typename TestType::Gate gate(client);
  launch(client, gate.hold());
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
  launch(client, TestType::multiply_add(data, 1, 2));
  auto contents = client.read_async(std::vector<Handle>{data});
  auto done = client.sync();
  REQUIRE_FALSE(contents.ready());
  leave.set_value();
  gate.open();
  occupant.join();
  REQUIRE(numbers(contents.get()[0]) == std::vector<std::uint32_t>(10, 2));
  done.get();
}

TEMPLATE_TEST_CASE("The device thread never runs kernels: it answers while one runs", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  typename TestType::Gate gate(device.client());
  launch(device.client(), gate.hold());
  gate.wait_until_entered();
  REQUIRE(device.client().memory_usage().number_allocs == 0);
  device.client().flush();
  gate.open();
}

TEMPLATE_TEST_CASE("Clients on many threads share a device", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const auto client = device.client();
      for (std::uint32_t i = 0; i < 50; ++i) {
        const Handle data = upload(client, {t, i});
        launch(client, TestType::multiply_add(data, 2, 1));
        if (numbers(client.read_one(data)) == std::vector<std::uint32_t>{2 * t + 1, 2 * i + 1}) ++right;
      }
    });
  for (auto& thread : threads) thread.join();
  REQUIRE(right == 200);
}

TEMPLATE_TEST_CASE("Reads and syncs complete Asio tokens", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const Handle data = upload(device.client(), {9});
  const std::vector<Handle> handles{data};
  REQUIRE(numbers(device.client().read_async(handles, boost::asio::use_future).get()[0]) ==
          std::vector<std::uint32_t>{9});
  device.client().sync(boost::asio::use_future).get();
  std::promise<std::size_t> size;
  device.client().read_async(handles,
                             [&](std::exception_ptr, std::vector<Bytes> bytes) { size.set_value(bytes[0].size()); });
  REQUIRE(size.get_future().get() == 4);
}

TEMPLATE_TEST_CASE("A ready server may be registered, once, and moved over a live one", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  using Server = typename TestType::Server;
  using Client = typename TestType::Client;
  const cox::DeviceId device{.type = TestType::device_type, .index = 0};
  Server server(device);
  server = Server(device);
  const Client client = Client::init(device, std::move(server));
  REQUIRE(content(client, upload(client, {4})) == std::vector<std::uint32_t>{4});
  REQUIRE(kind_of<cox::CallError>([&] { (void)Client::init(device, Server(device)); }) ==
          cox::CallError::Kind::AlreadyRegistered);
  cox::shutdown(device);
}
