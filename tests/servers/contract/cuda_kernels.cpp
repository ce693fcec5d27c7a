#if COX_CUDA_TESTS

#include <coxswain/tests/servers/contract/cuda_kernels.hpp>

#include <string>
#include <utility>
#include <vector>

namespace cox::test {
namespace {

constexpr const char* grid_stride = R"(
#define COX_FOR_ALL(i, count)                                                                              \
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += gridDim.x * blockDim.x)
)";

constexpr const char* gates = R"(
struct Words {
  unsigned entered, open, left, sum;
};
__device__ unsigned load(const unsigned* word) {
  unsigned value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ void store(unsigned* word, unsigned value) {
  asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}
__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
// For 15 s at most, so that a test that hangs ends: see open().
__device__ void wait(Words* words) {
  store(&words->entered, 1);
  const unsigned long long begin = nanoseconds();
  while (load(&words->open) == 0 && nanoseconds() - begin < 15000000000ull) __nanosleep(500);
}
__device__ void leave(Words* words) { store(&words->left, 1); }
)";

std::vector<KernelParameter> reads(std::size_t buffers, std::vector<KernelParameter> others) {
  others.insert(others.begin(), buffers, KernelParameter::buffer(Access::Read));
  return others;
}

CudaKernel kernel(const char* name, CubeDim dim, const std::string& text, std::vector<KernelParameter> parameters) {
  const std::string source = std::string(grid_stride) + "extern \"C\" __global__ void " + name + text;
  return CudaKernel::from_source(name, dim, source, {.parameters = std::move(parameters)});
}
/// A kernel whose first scalar is the address of its gate's words.
CudaKernel gate(const char* name, const std::string& text, std::vector<KernelParameter> parameters) {
  const std::string source = std::string(gates) + "extern \"C\" __global__ void " + name + text;
  return CudaKernel::from_source(name, CubeDim::single(), source, {.parameters = std::move(parameters)});
}

CudaKernels make() {
  constexpr auto buffer = KernelParameter::buffer();
  constexpr auto number = KernelParameter::scalar(4);
  constexpr auto address = KernelParameter::scalar(8);
  const CubeDim one = CubeDim::single();
  const CubeDim many = CubeDim::of_1d(256);
  return {
      .fill = kernel("fill", one, R"((unsigned* data, unsigned count, unsigned value) {
        COX_FOR_ALL(i, count) data[i] = value;
      })",
                     {buffer, number, number}),
      .copy = kernel("copy", many, R"((const unsigned* from, unsigned* to, unsigned count) {
        COX_FOR_ALL(i, count) to[i] = from[i];
      })",
                     reads(1, {buffer, number})),
      .add_to = kernel("add_to", many, R"((const unsigned* from, unsigned* to, unsigned count) {
        COX_FOR_ALL(i, count) to[i] += from[i];
      })",
                       reads(1, {buffer, number})),
      .plus_one = kernel("plus_one", many, R"((const unsigned* from, unsigned* to, unsigned count) {
        COX_FOR_ALL(i, count) to[i] = from[i] + 1;
      })",
                         reads(1, {buffer, number})),
      .add = kernel("add", many, R"((const unsigned* left, const unsigned* right, unsigned* to, unsigned count) {
        COX_FOR_ALL(i, count) to[i] = left[i] + right[i];
      })",
                    reads(2, {buffer, number})),
      .multiply_add = kernel("multiply_add", CubeDim::of_1d(32),
                             R"((unsigned* data, unsigned count, unsigned factor, unsigned summand) {
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < count) data[i] = data[i] * factor + summand;
      })",
                             {buffer, number, number, number}),
      .indices = kernel("indices", {2, 2, 1}, R"((unsigned* data) {
        const unsigned cube = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        const unsigned unit = threadIdx.x + blockDim.x * threadIdx.y;
        data[cube * 4 + unit] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * unit;
      })",
                        {buffer}),
      .nothing = kernel("nothing", one, "() {}", {}),
      .misused = kernel("misused", one, "(unsigned*, unsigned*, unsigned*) {}", {buffer, buffer, buffer}),
      .peek = kernel("peek", many, R"((char* to, unsigned bytes, const char* address) {
        COX_FOR_ALL(i, bytes) to[i] = address[i];
      })",
                     {buffer, number, address}),
      .poke = kernel("poke", many, R"((const char* from, unsigned bytes, char* address) {
        COX_FOR_ALL(i, bytes) address[i] = from[i];
      })",
                     reads(1, {number, address})),
      .gate = gate("gate", R"((Words* words) {
        wait(words);
        leave(words);
      })",
                   {address}),
      .gate_hold = gate("gate_hold", R"((unsigned*, Words* words) {
        wait(words);
        leave(words);
      })",
                        {buffer, address}),
      .gate_fill = gate("gate_fill", R"((unsigned* data, Words* words, unsigned count, unsigned value) {
        wait(words);
        for (unsigned i = 0; i < count; ++i) data[i] = value;
        leave(words);
      })",
                        {buffer, address, number, number}),
      .gate_copy = gate("gate_copy", R"((const unsigned* from, unsigned* to, Words* words, unsigned count) {
        wait(words);
        for (unsigned i = 0; i < count; ++i) to[i] = from[i];
        leave(words);
      })",
                        reads(1, {buffer, address, number})),
      .gate_sum = gate("gate_sum", R"((const unsigned* data, Words* words, unsigned count) {
        wait(words);
        unsigned sum = 0;
        for (unsigned i = 0; i < count; ++i) sum += data[i];
        store(&words->sum, sum);
        leave(words);
      })",
                       {buffer, address, number}),
  };
}

}  // namespace

const CudaKernels& cuda_kernels() {
  static const CudaKernels kernels = make();
  return kernels;
}

const CudaKernel& broken_cuda_kernel() {
  static const CudaKernel kernel = CudaKernel::from_source("impossible", CubeDim::single(),
                                                           "extern \"C\" __global__ void impossible() { nonsense; }",
                                                           {.parameters = std::vector(5, KernelParameter::buffer())});
  return kernel;
}

}  // namespace cox::test

#endif
