#include <coxswain/perf/collective/cuda/matrix_product.hpp>

#include <cstdint>

namespace cox::perf {
namespace {

constexpr std::uint32_t tile = 128;
constexpr std::uint32_t threads = 256;

// Each block computes 128 x 128 elements, each thread 8 x 8 of them, from tiles in shared memory.
constexpr const char* source = R"(
extern "C" __global__ __launch_bounds__(256) void matrix_product(const float* left, const float* right, float* result,
                                                                  unsigned rows) {
  constexpr unsigned tile = 128, depth = 16, side = 8, lanes = tile / side;
  __shared__ float l[depth][tile + 4];
  __shared__ float r[depth][tile];
  const unsigned x = threadIdx.x % lanes, y = threadIdx.x / lanes;
  const float* of_left = left + (size_t)blockIdx.y * tile * rows;
  const float* of_right = right + blockIdx.x * tile;
  float sums[side][side] = {};
  for (unsigned at = 0; at < rows; at += depth) {
    for (unsigned i = threadIdx.x; i < tile * depth; i += blockDim.x) {
      l[i % depth][i / depth] = of_left[(size_t)(i / depth) * rows + at + i % depth];
      r[i / tile][i % tile] = of_right[(size_t)(at + i / tile) * rows + i % tile];
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < depth; ++k) {
      float a[side], b[side];
      for (unsigned i = 0; i < side; ++i) a[i] = l[k][y + i * lanes];
      for (unsigned j = 0; j < side; ++j) b[j] = r[k][x + j * lanes];
      for (unsigned i = 0; i < side; ++i)
        for (unsigned j = 0; j < side; ++j) sums[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
  for (unsigned i = 0; i < side; ++i)
    for (unsigned j = 0; j < side; ++j)
      result[(size_t)(blockIdx.y * tile + y + i * lanes) * rows + blockIdx.x * tile + x + j * lanes] = sums[i][j];
}
)";

CudaClient on_new_stream(DeviceId device) {
  CudaClient client = CudaClient::load(device);
  client.set_stream(StreamId::allocate());
  return client;
}

}  // namespace

MatrixProduct::MatrixProduct(DeviceId device, std::size_t rows)
    : rows_(rows),
      client_(on_new_stream(device)),
      kernel_(CudaKernel::from_source("matrix_product", CubeDim::of_1d(threads), source)),
      left_(client_.create(Bytes::zeroed(rows * rows * sizeof(float)))),
      right_(client_.create(Bytes::zeroed(rows * rows * sizeof(float)))),
      result_(client_.empty(rows * rows * sizeof(float))) {
  launch();
  wait();
}

void MatrixProduct::launch() const {
  const auto tiles = static_cast<std::uint32_t>(rows_ / tile);
  client_.launch(kernel_, CubeCount::of_2d(tiles, tiles),
                 KernelArguments()
                     .with_buffer(left_, Access::Read)
                     .with_buffer(right_, Access::Read)
                     .with_buffer(result_, Access::Overwrite)
                     .with_scalar(static_cast<std::uint32_t>(rows_)));
}

}  // namespace cox::perf
