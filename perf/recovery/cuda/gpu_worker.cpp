#include <coxswain/perf/recovery/cuda/gpu_worker.hpp>

#include <coxswain/perf/recovery/contents.hpp>
#include <coxswain/perf/recovery/worker.hpp>
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

namespace cox::perf {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned blocks = 2048;

// word() is Contents::word.
constexpr const char* source = R"(
typedef unsigned long long u64;
__device__ u64 word(u64 at, u64 update, u64 device, u64 slice_words, u64 slices) {
  u64 age = (update % slices + slices - at / slice_words) % slices;
  u64 writer = update > age ? update - age : 0;
  return (writer + 1) * 0x9E3779B97F4A7C15ull ^ (at + 1) * 0xC2B2AE3D27D4EB4Full ^ (device + 1) * 0x165667B19E3779F9ull;
}
extern "C" __global__ void write_words(u64* words, u64 first, u64 count, u64 update, u64 device, u64 slice_words,
                                       u64 slices) {
  u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    words[first + i] = word(first + i, update, device, slice_words, slices);
}
extern "C" __global__ void count_wrong(const u64* words, u64* wrong, u64 count, u64 update, u64 device,
                                       u64 slice_words, u64 slices) {
  u64 step = (u64)gridDim.x * blockDim.x;
  u64 found = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    if (words[i] != word(i, update, device, slice_words, slices)) ++found;
  if (found != 0) atomicAdd(wrong, found);
}
extern "C" __global__ void fail(u64* data, unsigned kind) {
  if (threadIdx.x != 0) return;
  if (kind == 0) asm volatile("trap;");
  if (kind == 1) *(volatile u64*)0x10 = 1;
  __assertfail("a planned fault", "perf_recovery", 1, "fail", 1);
}
)";

CudaKernel kernel(const char* name) { return CudaKernel::from_source(name, CubeDim::of_1d(threads), source); }

}  // namespace

void run_gpu_worker(const RecoveryOptions& options, const Journal& journal, const sigset_t& signals) {
  const Contents contents{.words = options.bytes / sizeof(std::uint64_t),
                          .slice_words = options.step_bytes / sizeof(std::uint64_t)};
  WorkerDevices<CudaClient> devices;
  for (const DeviceId device : options.devices) devices.clients.push_back(CudaClient::load(device));
  for (const CudaClient& client : devices.clients) client.sync().get();
  journal.report(Moment::Opened);
  const CudaKernel write_words = kernel("write_words");
  const CudaKernel count_wrong = kernel("count_wrong");
  const CudaKernel fail = kernel("fail");
  for (const DeviceId device : options.devices)
    for (const CudaKernel* each : {&write_words, &count_wrong, &fail}) each->prepare(device);
  // The last device fails, on a stream of its own.
  CudaClient last = devices.clients.back();
  last.set_stream(StreamId::allocate());
  const Handle unused = last.empty(sizeof(std::uint64_t));
  last.sync().get();
  journal.report(Moment::Prepared);
  devices.write = [&](std::size_t device, const Handle& memory, Access access, Contents::Part part,
                      std::uint64_t update) {
    devices.clients[device].launch(write_words, CubeCount::of_1d(blocks),
                                   KernelArguments()
                                       .with_buffer(memory, access)
                                       .with_scalar(part.first)
                                       .with_scalar(part.count)
                                       .with_scalar(update)
                                       .with_scalar(static_cast<std::uint64_t>(device))
                                       .with_scalar(contents.slice_words)
                                       .with_scalar(contents.slices()));
  };
  devices.count_wrong = [&](std::size_t device, const Handle& memory, std::uint64_t update) {
    const CudaClient& client = devices.clients[device];
    const Handle result = client.create(Bytes::zeroed(sizeof(std::uint64_t)));
    client.launch(count_wrong, CubeCount::of_1d(blocks),
                  KernelArguments()
                      .with_buffer(memory, Access::Read)
                      .with_buffer(result)
                      .with_scalar(contents.words)
                      .with_scalar(update)
                      .with_scalar(static_cast<std::uint64_t>(device))
                      .with_scalar(contents.slice_words)
                      .with_scalar(contents.slices()));
    return client.read_one(result).to_vector<std::uint64_t>()[0];
  };
  devices.fail = [&](Cause cause) {
    const std::uint32_t kind = cause == Cause::Trap ? 0 : cause == Cause::Address ? 1 : 2;
    last.launch(fail, CubeCount::single(), KernelArguments().with_buffer(unused).with_scalar(kind));
  };
  Worker<CudaClient>(options, contents, journal, devices).run_to_end(signals, [](int code) { return exit_code(code); });
}

}  // namespace cox::perf
