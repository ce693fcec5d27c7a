// T1: which calls of the driver a device thread may make at any time: they must not wait for a kernel that runs, not
// even when a pool of the driver grows. So each is made many times. docs/decisions/0006 has those that wait.
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/kernel/empty_kernel.hpp>
#include <coxswain/servers/cuda/kernel/kernel_library.hpp>
#include <coxswain/servers/cuda/memory/cuda_storage.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>
#include <coxswain/tests/servers/cuda/open_cuda.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace cox;
using namespace cox::detail;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

ComputeCapability capability_of(const CudaContext& context) {
  return {context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
          context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
}

/// A GPU, and a kernel that runs on it until it is stopped.
class BusyGpu {
 public:
  BusyGpu() {
    static constexpr std::string_view ptx = R"ptx(
.version 7.0
.target sm_70
.address_size 64
.visible .entry cox_test_spin(.param .u64 word)
{
	.reg .u64 %address;
	.reg .u32 %value;
	.reg .pred %waits;
	ld.param.u64 %address, [word];
$again:
	ld.volatile.global.u32 %value, [%address];
	setp.eq.u32 %waits, %value, 0;
	@%waits bra $again;
	ret;
}
)ptx";
    spin_ = load_from_image(std::as_bytes(std::span(ptx.data(), ptx.size() + 1)), "cox_test_spin",
                            capability_of(*context_));
    COX_CUDA_TRY(host_alloc(word_.out(), 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    ::new (word_.get()) std::atomic<std::uint32_t>(0);
    COX_CUDA_TRY(stream_create(stream_.out(), CU_STREAM_NON_BLOCKING, 0));
  }
  BusyGpu(const BusyGpu&) = delete;
  BusyGpu& operator=(const BusyGpu&) = delete;
  ~BusyGpu() { stop(); }

  void start() {
    word().store(0);
    std::uint64_t address = reinterpret_cast<std::uintptr_t>(word_.get());
    std::array<void*, 1> arguments{&address};
    const CUlaunchConfig config = launch_config({1, 1, 1}, {1, 1, 1}, 0, stream_.get());
    REQUIRE(driver().launch(&config, spin_, arguments.data(), nullptr) == CUDA_SUCCESS);
  }
  [[nodiscard]] bool is_busy() const { return driver().stream_query(stream_.get()) == CUDA_ERROR_NOT_READY; }
  void stop() noexcept {
    word().store(1);
    static_cast<void>(driver().stream_synchronize(stream_.get()));
  }
  [[nodiscard]] const CudaContext& context() const noexcept { return *context_; }

 private:
  [[nodiscard]] std::atomic<std::uint32_t>& word() const noexcept {
    return *static_cast<std::atomic<std::uint32_t>*>(word_.get());
  }

  std::shared_ptr<CudaContext> context_ = CudaContext::open(0);
  CurrentContext current_{*context_};
  CUfunction spin_ = nullptr;
  DriverHostMemory word_;
  DriverStream stream_;
};

struct Calls {
  std::string what;
  int times;
  std::function<void(int)> call;
};

}  // namespace

TEST_CASE("T1: calls that a device thread makes at any time do not wait for a running kernel", "[gpu]") {
  COX_REQUIRE_GPUS(1);
  BusyGpu gpu;
  DriverStream stream;
  COX_CUDA_TRY(stream_create(stream.out(), CU_STREAM_NON_BLOCKING, 0));
  const CUfunction empty = load_empty_kernel(capability_of(gpu.context()));
  LaunchBatch batch(driver());
  batch.make_graphs(std::make_shared<LaunchGraphs>(driver(), empty, 0), LaunchBatch::max_kernels);
  DriverMemory device;
  COX_CUDA_TRY(memory_alloc(device.out(), 2 * mebibyte));
  DriverHostMemory pinned;
  COX_CUDA_TRY(host_alloc(pinned.out(), mebibyte, CU_MEMHOSTALLOC_PORTABLE));
  std::vector<std::byte> pageable(mebibyte);
  DriverMemory word;
  COX_CUDA_TRY(memory_alloc(word.out(), 64));
  std::deque<DriverEvent> events;
  std::deque<DriverHostMemory> host_memory;
  CudaStorage storage(CudaContext::open(0));
  const MemoryAddress space = storage.reserve(512 * mebibyte);
  const std::vector<std::uint64_t> words(LaunchGraphs::max_argument_bytes / sizeof(std::uint64_t));
  constexpr std::array<std::uint32_t, 1> begin{0};
  bool launched = true;
  const std::vector<Calls> all{
      {"launches, of 1 to 16 kernels", 2000,
       [&](int i) {
         for (int kernel = 0; kernel <= i % 16; ++kernel)
           batch.add(
               {.function = empty, .words = words, .parameter_begins = begin},
               [&](const LaunchBatch::Outcome& outcome) { launched = launched && outcome.result == CUDA_SUCCESS; });
         batch.flush(stream.get());
         if (!launched) throw std::runtime_error("a launch was refused");
       }},
      {"events: create, record, wait", 20'000,
       [&](int) {
         COX_CUDA_TRY(event_create(events.emplace_back().out(), CU_EVENT_DISABLE_TIMING));
         COX_CUDA_TRY(event_record(events.back().get(), stream.get()));
         COX_CUDA_TRY(stream_wait_event(stream.get(), events.back().get(), CU_EVENT_WAIT_DEFAULT));
       }},
      {"waits for a word", 3000,
       [&](int) { COX_CUDA_TRY(stream_wait_value(stream.get(), word.get(), 0, CU_STREAM_WAIT_VALUE_GEQ)); }},
      {"copies to the device", 2000,
       [&](int i) {
         const std::size_t bytes = 4 + static_cast<std::size_t>(i % 200) * 4096;
         COX_CUDA_TRY(copy_to_device(device.get(), pinned.get(), bytes, stream.get()));
         COX_CUDA_TRY(copy_to_device(device.get(), pageable.data(), bytes, stream.get()));
       }},
      {"copies to the host", 2000,
       [&](int i) {
         const std::size_t bytes = 4 + static_cast<std::size_t>(i % 200) * 4096;
         COX_CUDA_TRY(copy_to_host(pinned.get(), device.get(), bytes, stream.get()));
       }},
      {"memory: create, map, set access, unmap, release", 100,
       [&](int i) {
         const std::size_t bytes = (std::size_t{1} << static_cast<unsigned>(1 + i % 8)) * mebibyte;
         if (!storage.map(space, bytes)) throw std::bad_alloc();
         storage.unmap(space, bytes);
       }},
      {"page-locked memory: create", 100,
       [&](int) { COX_CUDA_TRY(host_alloc(host_memory.emplace_back().out(), mebibyte, CU_MEMHOSTALLOC_PORTABLE)); }},
  };
  for (const Calls& calls : all) {
    CAPTURE(calls.what);
    gpu.start();
    std::future<void> done = std::async(std::launch::async, [&] {
      const CurrentContext current(gpu.context());
      for (int i = 0; i < calls.times; ++i) calls.call(i);
    });
    CHECK(done.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    CHECK(gpu.is_busy());
    gpu.stop();
    CHECK_NOTHROW(done.get());
    COX_CUDA_TRY(stream_synchronize(stream.get()));
  }
  storage.release(space, 512 * mebibyte);
}
