#if COX_HAS_CUDA

#include <coxswain/tools/cox/stress/cuda_kept_kernels.hpp>

namespace cox::stress {
namespace {

// One thread block, so that an end in between is likely.
constexpr const char* kept_source = R"(
using Word = unsigned long long;
__device__ Word mixed(Word z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
extern "C" __global__ void write_words(Word* words, Word count, Word epoch, Word place) {
  for (Word i = threadIdx.x; i < count; i += blockDim.x)
    ((volatile Word*)words)[i] = mixed(epoch ^ mixed(place * 0x100000001u + i + 0x9E3779B97F4A7C15u));
}
extern "C" __global__ void fail(Word* unused, unsigned kind) {
  if (threadIdx.x != 0) return;
  if (kind == 0) asm volatile("trap;");
  if (kind == 1) *(volatile Word*)0x10 = 1;
  __assertfail("a planned fault", "cox stress --kept", 1, "fail", 1);
}
)";

const CudaKernel& write_words() {
  static const CudaKernel kernel = CudaKernel::from_source("write_words", CubeDim::of_1d(256), kept_source);
  return kernel;
}

const CudaKernel& failing() {
  static const CudaKernel kernel = CudaKernel::from_source("fail", CubeDim::of_1d(32), kept_source);
  return kernel;
}

}  // namespace

void KeptKernels<CudaClient>::prepare(const CudaClient& client) {
  write_words().prepare(client.device_id());
  failing().prepare(client.device_id());
}

void KeptKernels<CudaClient>::write(const CudaClient& client, const Handle& memory, Access access, std::size_t count,
                                    std::uint64_t epoch, std::uint64_t place) {
  client.launch(write_words(), CubeCount::single(),
                KernelArguments()
                    .with_buffer(memory, access)
                    .with_scalar(std::uint64_t{count})
                    .with_scalar(epoch)
                    .with_scalar(place));
}

void KeptKernels<CudaClient>::fail(CudaClient client, KeptEnd end) {
  client.set_stream(StreamId::allocate());
  const std::uint32_t kind = end == KeptEnd::Trap ? 0 : end == KeptEnd::Address ? 1 : 2;
  client.launch(failing(), CubeCount::single(),
                KernelArguments().with_buffer(client.empty(sizeof(std::uint64_t))).with_scalar(kind));
}

}  // namespace cox::stress

#endif
