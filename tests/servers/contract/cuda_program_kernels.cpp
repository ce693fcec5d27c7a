#if COX_CUDA_TESTS

#include <coxswain/tests/servers/contract/program_kernels.hpp>

#include <string>
#include <utility>
#include <vector>

namespace cox::test {
namespace {

// run_cube of program_kernels.cpp. The cubes of a launch come one after the other there, and their order shows: here
// the units of the first cube do the work of all, cube by cube.
constexpr const char* common = R"(
enum Kernel { Fill, ScaleAdd, Copy, Reduce, Permute, Mix, Count };
struct Buffer {
  unsigned* data;
  unsigned size;
};
__device__ unsigned begin_of(unsigned size, unsigned cube) {
  return (unsigned)((unsigned long long)size * (cube % 4) / 4);
}
__device__ unsigned end_of(unsigned size, unsigned cube) {
  return (unsigned)((unsigned long long)size * (cube % 4 + 1) / 4);
}
template <int ins, int outs>
__device__ void run(Kernel kernel, const Buffer (&in)[ins + 1], Buffer (&out)[outs], unsigned factor, unsigned summand,
                    unsigned passes) {
  if (blockIdx.x + blockIdx.y + blockIdx.z != 0) return;
  const unsigned cubes = gridDim.x * gridDim.y * gridDim.z;
  __shared__ unsigned sum;
  for (unsigned cube = 0; cube < cubes; ++cube) {
    if (kernel == Reduce) {
      if (threadIdx.x == 0) sum = 0;
      __syncthreads();
      unsigned mine = 0;
      for (int k = 0; k < ins; ++k)
        for (unsigned i = begin_of(in[k].size, cube) + threadIdx.x; i < end_of(in[k].size, cube); i += blockDim.x)
          mine += in[k].data[i];
      atomicAdd(&sum, mine);
      __syncthreads();
      if (threadIdx.x == 0) out[0].data[0] = out[0].data[0] * factor + sum;
      __syncthreads();
      continue;
    }
    for (int k = 0; k < outs; ++k) {
      unsigned* const to = out[k].data;
      const Buffer from = in[k % (ins == 0 ? 1 : ins)];
      for (unsigned i = begin_of(out[k].size, cube) + threadIdx.x; i < end_of(out[k].size, cube); i += blockDim.x) {
        unsigned value = to[i];
        switch (kernel) {
          case Fill: value = i * factor + summand; break;
          case ScaleAdd:
            for (unsigned pass = 0; pass < passes; ++pass) value = value * factor + summand;
            break;
          case Copy: value = from.data[i % from.size]; break;
          case Permute: value = from.data[(i * factor + summand) % from.size]; break;
          case Mix: value = value * factor + from.data[i % from.size]; break;
          case Count: {
            const unsigned given = from.data[i % from.size];
            value = given % 16 == 0 ? 0 : 1 + given % 2;
            break;
          }
          case Reduce: break;
        }
        to[i] = value;
      }
    }
    __syncthreads();
  }
}
)";

/// extern "C" __global__ void program_copy_1_1(unsigned* b0, unsigned* b1, unsigned factor, ..., unsigned n0, ...)
std::string source_of(const ProgramJob& job, const std::string& name) {
  const std::size_t buffers = job.ins + job.outs;
  std::string pointers;
  std::string sizes;
  std::string in;
  std::string out;
  for (std::size_t i = 0; i < buffers; ++i) {
    const std::string number = std::to_string(i);
    pointers += "unsigned* b" + number + ", ";
    sizes += ", unsigned n" + number;
    (i < job.ins ? in : out) += "{b" + number + ", n" + number + "}, ";
  }
  return std::string(common) + "extern \"C\" __global__ void " + name + "(" + pointers +
         "unsigned factor, unsigned summand, unsigned passes" + sizes + ") {\n  const Buffer in[" +
         std::to_string(job.ins + 1) + "] = {" + in + "{nullptr, 1}};\n  Buffer out[] = {" + out + "};\n  run<" +
         std::to_string(job.ins) + ", " + std::to_string(job.outs) + ">((Kernel)" +
         std::to_string(static_cast<int>(job.kernel)) + ", in, out, factor, summand, passes);\n}\n";
}

}  // namespace

std::string cuda_name_of(const ProgramJob& job) {
  return std::string("program_") + job.name + "_" + std::to_string(job.ins) + "_" + std::to_string(job.outs);
}

template <>
CudaKernel program_kernel<CudaBackend>(const ProgramJob& job) {
  const std::string name = cuda_name_of(job);
  const std::size_t buffers = job.ins + job.outs;
  std::vector<KernelParameter> parameters(buffers, KernelParameter::buffer());
  parameters.insert(parameters.end(), 3 + buffers, KernelParameter::scalar(4));
  return CudaKernel::from_source(name, CubeDim::of_1d(256), source_of(job, name),
                                 {.parameters = std::move(parameters)});
}

}  // namespace cox::test

#endif
