// What all kernels use. The engine compiles it in front of each other file of this folder, after a definition of
// COX_TRAIN_BF16: 1 if activations and their gradients are bfloat16, 0 if they are float. NVRTC may have no include
// path, so nothing is included. The test of the kernels compiles the same text for the CPU and defines KERNEL itself.

#ifndef KERNEL
#define KERNEL extern "C" __global__
#endif

using Size = unsigned long long;

// A scalar as the library passes it: in a word of 8 bytes.
template <class T>
struct alignas(8) Scalar {
  T value;
  __device__ operator T() const { return value; }
};
using Count = Scalar<unsigned>;
using Flag = Scalar<unsigned>;
using Number = Scalar<float>;

// The upper half of a float.
struct Bfloat16 {
  unsigned short bits;
};

#if COX_TRAIN_BF16
using Element = Bfloat16;
#else
using Element = float;
#endif

// Number of elements in the widest access to memory, 16 bytes.
[[maybe_unused]] constexpr int lanes = 16 / sizeof(Element);
constexpr int warp_size = 32;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

// To nearest, ties to even; a NaN stays one.
__device__ inline unsigned bfloat16_bits(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return (bits >> 16) | 0x40U;
  return (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
}
// `low` in the lower half of the result.
__device__ inline unsigned two_bfloat16(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return bfloat16_bits(low) | (bfloat16_bits(high) << 16);
#endif
}

__device__ inline void round_to(float* to, float x) { *to = x; }
__device__ inline void round_to(Bfloat16* to, float x) { to->bits = static_cast<unsigned short>(bfloat16_bits(x)); }

// Loads and stores of `n` consecutive elements: of one, or of 16 aligned bytes.
template <int n>
struct Vector;

template <>
struct Vector<1> {
  template <class T>
  __device__ static void load(const T* from, float (&x)[1]) {
    x[0] = to_float(*from);
  }
  template <class T>
  __device__ static void store(T* to, const float (&x)[1]) {
    round_to(to, x[0]);
  }
};

template <>
struct Vector<4> {
  __device__ static void load(const float* from, float (&x)[4]) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
  }
  __device__ static void store(float* to, const float (&x)[4]) {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  }
  __device__ static void store(Bfloat16* to, const float (&x)[4]) {
    *reinterpret_cast<uint2*>(to) = make_uint2(two_bfloat16(x[0], x[1]), two_bfloat16(x[2], x[3]));
  }
};

template <>
struct Vector<8> {
  __device__ static void load(const Bfloat16* from, float (&x)[8]) {
    const uint4 v = *reinterpret_cast<const uint4*>(from);
    split(v.x, x[0], x[1]);
    split(v.y, x[2], x[3]);
    split(v.z, x[4], x[5]);
    split(v.w, x[6], x[7]);
  }
  __device__ static void load(const float* from, float (&x)[8]) {
    float half[4];
    Vector<4>::load(from, half);
    for (int i = 0; i < 4; ++i) x[i] = half[i];
    Vector<4>::load(from + 4, half);
    for (int i = 0; i < 4; ++i) x[4 + i] = half[i];
  }
  __device__ static void store(Bfloat16* to, const float (&x)[8]) {
    *reinterpret_cast<uint4*>(to) = make_uint4(two_bfloat16(x[0], x[1]), two_bfloat16(x[2], x[3]),
                                               two_bfloat16(x[4], x[5]), two_bfloat16(x[6], x[7]));
  }
  __device__ static void store(float* to, const float (&x)[8]) {
    const float first[4] = {x[0], x[1], x[2], x[3]};
    const float second[4] = {x[4], x[5], x[6], x[7]};
    Vector<4>::store(to, first);
    Vector<4>::store(to + 4, second);
  }

 private:
  __device__ static void split(unsigned both, float& low, float& high) {
    low = __uint_as_float(both << 16);
    high = __uint_as_float(both & 0xffff0000U);
  }
};

__device__ inline Size global_thread() { return static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x; }

// Calls f(first element, Vector) for the elements of this thread: `lanes` of them at once, or the last ones of `count`
// one by one.
template <class F>
__device__ inline void for_elements(Size count, const F& f) {
  const Size first = global_thread() * lanes;
  if (first + lanes <= count) {
    f(first, Vector<lanes>());
  } else {
    for (Size i = first; i < count; ++i) f(i, Vector<1>());
  }
}
template <int n>
__device__ constexpr int width_of(Vector<n>) {
  return n;
}

// Sums over the threads of a warp, or of the block. The order of the additions is fixed. Every thread gets the result.
__device__ inline float warp_sum(float x) {
  for (int offset = warp_size / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffU, x, offset);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(0xffffffffU, x, offset);
    x = other > x ? other : x;
  }
  return x;
}
// `shared`: warp_size floats. The block has whole warps.
__device__ inline float block_sum(float x, float* shared) {
  const unsigned warps = blockDim.x / warp_size;
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = x;
  __syncthreads();
  return warp_sum(threadIdx.x % warp_size < warps ? shared[threadIdx.x % warp_size] : 0.0F);
}
__device__ inline float block_max(float x, float* shared) {
  const unsigned warps = blockDim.x / warp_size;
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = x;
  __syncthreads();
  return warp_max(shared[threadIdx.x % warp_size < warps ? threadIdx.x % warp_size : 0]);
}
