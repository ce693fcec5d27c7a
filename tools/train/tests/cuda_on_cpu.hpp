#pragma once

// What the CUDA kernels of the engine use of CUDA C++, on the CPU: a block runs on the calling thread, each of its
// threads as a coroutine with a stack of its own. A thread runs until it waits for others at __syncthreads() or in a
// shuffle. Not everything is as on a GPU: reads and writes of threads that are not ordered by a barrier happen one
// after the other, so data races are not found.

#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace on_cpu {

struct Index {
  unsigned x = 0;
};

/// Threads that wait for each other.
struct Barrier {
  unsigned arrived = 0;
  unsigned generation = 0;
};

/// The threads of a block that is running. One for each thread of the CPU, used again for each block.
class Block {
 public:
  /// Runs `kernel` on each thread of block number `block`. Throws std::logic_error if threads wait at a barrier that
  /// others do not reach.
  void run(unsigned block, unsigned blocks, unsigned threads, const std::function<void()>& kernel);

  void sync() { wait(all_, threads_); }
  /// The value that the thread whose lane differs by `mask` passes.
  float shuffle_xor(float value, int mask);

  Index thread, block, block_dim, grid_dim;  // of the running thread

 private:
  struct Thread {
    ucontext_t context{};
    std::unique_ptr<std::byte[]> stack;
    unsigned shuffles = 0;
    bool ended = false;
  };
  struct Warp {
    Barrier barrier;
    float values[2][32] = {};
  };

  static void enter();
  void wait(Barrier& barrier, unsigned count);

  std::vector<std::unique_ptr<Thread>> all_threads_;
  std::vector<Warp> warps_;
  Barrier all_;
  unsigned threads_ = 0;
  bool progress_ = false;
  ucontext_t scheduler_{};
  const std::function<void()>* kernel_ = nullptr;
  std::exception_ptr failure_;
};

/// The block that runs on this thread of the CPU.
Block& current();

}  // namespace on_cpu

// The names of CUDA C++. NOLINTBEGIN
#define __device__
#define __global__
#define __shared__ static thread_local
#define threadIdx (on_cpu::current().thread)
#define blockIdx (on_cpu::current().block)
#define blockDim (on_cpu::current().block_dim)
#define gridDim (on_cpu::current().grid_dim)

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __expf(float x) { return std::exp(x); }
inline void __syncthreads() { on_cpu::current().sync(); }
inline float __shfl_xor_sync(unsigned, float value, int mask) { return on_cpu::current().shuffle_xor(value, mask); }
inline void __trap() { throw std::logic_error("trap"); }
inline void __assertfail(const char*, const char*, unsigned, const char*, size_t) {
  throw std::logic_error("assertion");
}
// NOLINTEND
