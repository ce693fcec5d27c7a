#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/tests/servers/cuda/open_cuda.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <malloc.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace cox;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What queued work left behind, as the next sync tells it.
std::string failure_of(const CudaClient& client) {
  try {
    client.sync().get();
  } catch (const ServerError& error) {
    return error.what();
  }
  return {};
}

/// Whether the next sync throws OutOfMemory with the line `asked` as the site of its cause.
bool throws_out_of_memory(const CudaClient& client, std::source_location asked) {
  try {
    client.sync().get();
  } catch (const ServerError& error) {
    const auto* const cause = find_cause<IoError>(error, IoError::Kind::OutOfMemory);
    return cause != nullptr && cause->site().line() == asked.line() &&
           std::string_view(cause->site().file_name()) == asked.file_name();
  }
  return false;
}

/// As the driver says.
std::size_t free_memory(int ordinal) {
  const auto context = detail::CudaContext::open(ordinal);
  const detail::CurrentContext current(*context);
  const auto memory_info = reinterpret_cast<PFN_cuMemGetInfo_v3020>(detail::driver().find("cuMemGetInfo", 3020));
  std::size_t free = 0;
  std::size_t total = 0;
  REQUIRE(memory_info(&free, &total) == CUDA_SUCCESS);
  return free;
}

/// Host memory of the process that is there, page-locked memory included.
// What the heap holds free is given back first: how much that is depends on the threads that came before.
std::size_t resident_bytes() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages >> pages;
  return pages * 4096;
}

}  // namespace

TEST_CASE("Bytes of any size come back from a GPU as they went", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  for (const std::size_t count : {1U, 1000U, 16'384U, 16'385U, 300'000U, 5'000'000U, 20'000'000U}) {
    const auto values = counting(count, 7);
    const Handle handle = gpu.client().create(Bytes::copy_of(values));
    CHECK(numbers(gpu.client().read_one(handle)) == values);
  }
}

TEST_CASE("Pinned bytes go up and come down", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  for (const std::size_t count : {10U, 3'000'000U}) {
    const auto values = counting(count, 3);
    const Handle handle = gpu.client().create_from_slice_pinned(std::as_bytes(std::span(values)));
    CHECK(numbers(gpu.client().read_one(handle)) == values);
  }
}

TEST_CASE("Padded tensors are copied by rows", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  for (const Shape& shape : {Shape{3, 5}, Shape{1000, 77}, Shape{3000, 1025}, Shape{2, 3'000'001}}) {
    const auto values = counting(shape[0] * shape[1]);
    const MemoryLayout layout = gpu.client().create_tensor(Bytes::copy_of(values), shape, 4);
    CHECK(numbers(gpu.client().read_one_tensor(layout.copy_descriptor(shape, 4))) == values);
  }
}

TEST_CASE("A file is uploaded without being brought into memory", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const auto values = counting(3'000'000, 1);
  const auto bytes = std::as_bytes(std::span(values));
  const TemporaryFile file(std::vector<std::byte>(bytes.begin(), bytes.end()));
  const Handle handle = gpu.client().create(Bytes::from_file(file.path(), 0, 4 * values.size()));
  CHECK(numbers(gpu.client().read_one(handle)) == values);
  const Handle too_long = gpu.client().create(Bytes::from_file(file.path(), 8, 4 * values.size()));
  CHECK_THROWS_AS(gpu.client().read_one(too_long), ServerError);
}

TEST_CASE("Launches run in the order of their stream, also many more than the driver takes at a time", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const Handle data = gpu.client().create(Bytes::copy_of(counting(1000)));
  std::vector<std::uint32_t> expected = counting(1000);
  slow_increment(gpu.client(), data, 20'000);
  for (auto& value : expected) ++value;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    multiply_add(gpu.client(), data, 3, i);
    for (auto& value : expected) value = value * 3 + i;
  }
  CHECK(numbers(gpu.client().read_one(data)) == expected);
}

TEST_CASE("Streams of a GPU that share a buffer wait for each other", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const CudaClient first = gpu.on_new_stream();
  const CudaClient second = gpu.on_new_stream();
  for (int round = 0; round < 50; ++round) {
    const Handle data = first.create(Bytes::copy_of(counting(70'000)));
    slow_increment(first, data, 300);
    multiply_add(second, data, 2, 0);
    slow_increment(first, data, 100);
    first.write(data, Bytes::copy_of(counting(70'000, 5)));
    multiply_add(second, data, 10, 1);
    std::vector<std::uint32_t> expected = counting(70'000, 5);
    for (auto& value : expected) value = value * 10 + 1;
    REQUIRE(numbers(first.read_one(data)) == expected);
  }
}

TEST_CASE("A cube count that only the GPU knows is read when it is its turn", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const CudaClient& client = gpu.client();
  const Handle count = client.create(Bytes::copy_of(std::vector<std::uint32_t>{1, 1, 1}));
  const Handle data = client.create(Bytes::copy_of(counting(1024)));
  multiply_add(client, count, 2, 0);  // (2, 2, 2)
  const CudaKernel kernel = multiply_add();
  const auto arguments = [&] {
    return KernelArguments().with_buffer(data).with_scalar(1024U).with_scalar(0U).with_scalar(9U);
  };
  client.launch(kernel, CubeCount::dynamic(count), arguments());
  std::vector<std::uint32_t> expected = counting(1024);
  for (std::size_t i = 0; i < 512; ++i) expected[i] = 9;
  CHECK(numbers(client.read_one(data)) == expected);
  client.write(count, Bytes::copy_of(std::vector<std::uint32_t>{0, 1, 1}));
  client.launch(kernel, CubeCount::dynamic(count), arguments());
  CHECK(failure_of(client).empty());
  client.write(count, Bytes::copy_of(std::vector<std::uint32_t>{1, 70'000, 1}));
  client.launch(kernel, CubeCount::dynamic(count), arguments());
  CHECK_THAT(failure_of(client), ContainsSubstring("cube count"));
}

TEST_CASE("What a launch asks too much of is found before the driver is asked", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const CudaClient& client = gpu.client();
  const Handle data = client.empty(4096);
  const auto arguments = [&] {
    return KernelArguments().with_buffer(data).with_scalar(1U).with_scalar(0U).with_scalar(9U);
  };
  client.launch(multiply_add().with_cube_dim({2048, 1, 1}), CubeCount::single(), arguments());
  CHECK_THAT(failure_of(client), ContainsSubstring("2048"));
  client.launch(multiply_add(), {1, 70'000, 1}, arguments());
  CHECK_THAT(failure_of(client), ContainsSubstring("70000"));
  client.launch(multiply_add(), CubeCount::single(), KernelArguments().with_scalar(1U));
  CHECK_THAT(failure_of(client), ContainsSubstring("takes 1 buffers"));
  client.launch(multiply_add(), CubeCount::single(), KernelArguments().with_buffer(data).with_scalar(1U));
  CHECK_THAT(failure_of(client), ContainsSubstring("too few scalars"));
  client.launch(
      CudaKernel::from_source("broken", CubeDim::single(), "extern \"C\" __global__ void broken() { nonsense; }"),
      CubeCount::single(), KernelArguments());
  CHECK_THAT(failure_of(client), ContainsSubstring("nonsense"));
  client.launch(multiply_add(), {0, 1, 1}, arguments());
  CHECK(failure_of(client).empty());
}

TEST_CASE("Metadata of varying length is in memory of the device, the rest in the launch", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const CudaClient& client = gpu.client();
  const CudaKernel kernel = CudaKernel::from_source("sum", CubeDim::single(), R"(
    struct Static { unsigned long long count; unsigned long long summand; };
    extern "C" __global__ void sum(unsigned long long* out, const unsigned long long* words, const Static block) {
      unsigned long long sum = block.summand;
      for (unsigned i = 0; i < block.count; ++i) sum += words[i];
      *out = sum;
    })");
  const Handle out = client.empty(8);
  MetadataBindingInfo info;
  for (const std::uint64_t word : {3U, 1000U, 1U, 20U, 300U}) info.data.push_back(word);
  info.dynamic_metadata_offset = 2;
  client.launch(kernel, CubeCount::single(), KernelArguments().with_buffer(out).with_info(info));
  CHECK(client.read_one(out).to_vector<std::uint64_t>() == std::vector<std::uint64_t>{1321});
}

TEST_CASE("A captured graph is replayed with what its inputs hold by then", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  CudaClient client = gpu.on_new_stream();
  const Handle input = client.create(Bytes::copy_of(counting(1000)));
  const Handle output = client.create(Bytes::copy_of(counting(1000)));
  const CudaKernel add_one = CudaKernel::from_source("add_one", CubeDim::of_1d(256), R"(
    extern "C" __global__ void add_one(const unsigned* in, unsigned* out, unsigned count) {
      const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < count) out[i] = in[i] + 1;
    })");
  const auto work = [&] {
    client.launch(add_one, cubes_for(1000),
                  KernelArguments().with_buffer(input, Access::Read).with_buffer(output).with_scalar(1000U));
  };
  client.graph_prepare();
  work();
  client.graph_start_capture();
  work();
  const auto graph = client.graph_stop_capture();
  graph.replay();
  CHECK(numbers(client.read_one(output)) == counting(1000, 1));
  client.write(input, Bytes::copy_of(counting(1000, 100)));
  graph.replay();
  CHECK(numbers(client.read_one(output)) == counting(1000, 101));
}

TEST_CASE("A profile tells how long the GPU was at work", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const CudaClient& client = gpu.client();
  const Handle data = client.create(Bytes::copy_of(counting(256)));
  slow_increment(client, data, 1);
  auto duration = client.profile([&] { slow_increment(client, data, 5000); });
  CHECK(duration.timing_method() == TimingMethod::Device);
  const auto taken = duration.get().duration();
  CHECK(taken >= std::chrono::microseconds(4900));
  CHECK(taken < std::chrono::milliseconds(100));
}

TEST_CASE("A full GPU says so, and serves on", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const CudaClient& client = gpu.client();
  const std::size_t capacity = client.properties().memory.capacity;
  const Handle most = client.empty(capacity / 10 * 9);
  CHECK(failure_of(client).empty());
  const Handle beyond = client.empty(capacity / 5);
  CHECK_THAT(failure_of(client), ContainsSubstring("out of"));
  const auto values = counting(100'000);
  CHECK(numbers(client.read_one(client.create(Bytes::copy_of(values)))) == values);
  CHECK_THROWS_AS(client.read_one(beyond), IoError);
}

TEST_CASE("A GPU that is 99 % full refuses what does not fit, and serves all that does", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  const CudaClient& client = gpu.client();
  const std::size_t free = free_memory(0);
  const Handle most = client.empty(free / 100 * 99);
  CHECK(failure_of(client).empty());
  for (int round = 0; round < 5; ++round) {
    const auto line = std::source_location::current();
    const Handle beyond = client.empty(free / 50, line);
    CHECK(throws_out_of_memory(client, line));
    CHECK_THROWS_AS(client.read_one(beyond), IoError);
    const auto values = counting(100'000, static_cast<std::uint32_t>(round));
    const Handle data = client.create(Bytes::copy_of(values));
    multiply_add(client, data, 1, 1);
    CHECK(numbers(client.read_one(data)) == counting(100'000, static_cast<std::uint32_t>(round) + 1));
  }
}

TEST_CASE("Without mapping, memory comes in plain allocations and is given back", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  set_settings({{"cuda.mapped_memory", false}});
  {
    OpenCuda gpu;
    const CudaClient& client = gpu.client();
    std::size_t before = 0;
    for (int round = 0; round < 2; ++round) {  // in the first the driver takes what it keeps
      before = free_memory(0);
      std::vector<Handle> kept;
      for (std::uint32_t i = 0; i < 40; ++i) {
        kept.push_back(client.create(Bytes::copy_of(counting(1'000'000, i))));
        multiply_add(client, kept.back(), 1, i);
      }
      for (std::uint32_t i = 0; i < 40; ++i) REQUIRE(numbers(client.read_one(kept[i])) == counting(1'000'000, 2 * i));
      CHECK(free_memory(0) + 160'000'000 <= before);
      kept.clear();
      client.memory_cleanup();
      client.sync().get();
    }
    CHECK(free_memory(0) == before);
    const Handle most = client.empty(before / 10 * 9);
    CHECK(failure_of(client).empty());
    const Handle beyond = client.empty(before / 5);
    CHECK_THAT(failure_of(client), ContainsSubstring("out of"));
  }
  reset_settings({"cuda.mapped_memory"});
}

TEST_CASE("A stream of high priority shares buffers with others as any", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  OpenCuda gpu;
  CudaClient urgent = gpu.client();
  urgent.set_stream(StreamId::allocate(StreamPriority::High));
  const Handle data = gpu.client().create(Bytes::copy_of(counting(1000)));
  for (int i = 0; i < 100; ++i) {
    multiply_add(gpu.client(), data, 1, 1);
    multiply_add(urgent, data, 1, 2);
  }
  CHECK(numbers(urgent.read_one(data)) == counting(1000, 300));
}

TEST_CASE("L13: what a device had is the driver's again after its shutdown", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  const auto context = detail::CudaContext::open(0);  // what the context itself takes is there all the time
  const auto use = [] {
    OpenCuda gpu;
    const CudaClient other = gpu.on_new_stream();
    std::vector<Handle> kept;
    for (std::uint32_t i = 0; i < 50; ++i) {
      kept.push_back(gpu.client().create(Bytes::copy_of(counting(2'000'000, i))));
      multiply_add(other, kept.back(), 3, 1);
    }
    const auto staging = gpu.client().reserve_staging(std::vector<std::size_t>{100'000'000});
    for (const Handle& handle : kept) static_cast<void>(other.read_one(handle));
  };
  use();  // loads what stays loaded
  const std::size_t device_before = free_memory(0);
  const std::size_t host_before = resident_bytes();
  for (int round = 0; round < 3; ++round) use();
  CHECK(free_memory(0) == device_before);
  CHECK(resident_bytes() < host_before + 50'000'000);
}

TEST_CASE("L13: a GPU that was shut down can be opened again, and its memory is back", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  const DeviceId device{.type = cuda_device_type, .index = 0};
  for (int round = 0; round < 3; ++round) {
    const CudaClient client = CudaClient::load(device);
    const Handle kept = client.create(Bytes::copy_of(counting(3'000'000)));
    for (int i = 0; i < 20; ++i) slow_increment(client, kept, 200);
    static_cast<void>(client.read_async({kept}));  // dropped
    shutdown(device);
    CHECK_THROWS_AS(client.read_one(kept), CallError);
  }
}
