#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace cox::detail {
namespace {

struct CodeOfType {
  ElementType type;
  std::string_view element;      // type of an element in memory
  std::string_view accumulator;  // type of the computation
  std::string_view exact;        // type in which the sum for a mean is exact
  std::string_view load;         // converts element `x` to an accumulator
  std::string_view store;        // converts accumulator `x` to an element
};

constexpr std::string_view plain = "x";
constexpr std::string_view by_quotient = "Quotient";  // no built-in type is exact: see struct Quotient

// Half-precision values are converted by instructions of the GPU, so that no header is needed.
constexpr std::array codes_of_types{
    CodeOfType{ElementType::I8, "signed char", "int", "int", plain, plain},
    CodeOfType{ElementType::U8, "unsigned char", "unsigned", "unsigned", plain, plain},
    CodeOfType{ElementType::I16, "short", "int", "int", plain, plain},
    CodeOfType{ElementType::U16, "unsigned short", "unsigned", "unsigned", plain, plain},
    CodeOfType{ElementType::I32, "int", "int", "long long", plain, plain},
    CodeOfType{ElementType::U32, "unsigned", "unsigned", "unsigned long long", plain, plain},
    CodeOfType{ElementType::I64, "long long", "long long", by_quotient, plain, plain},
    CodeOfType{ElementType::U64, "unsigned long long", "unsigned long long", by_quotient, plain, plain},
    CodeOfType{ElementType::F16, "unsigned short", "float", "float", "half_to_float(x)", "float_to_half(x)"},
    CodeOfType{ElementType::BF16, "unsigned short", "float", "float", "__uint_as_float((unsigned)x << 16)",
               "float_to_bf16(x)"},
    CodeOfType{ElementType::F32, "float", "float", "float", plain, plain},
    CodeOfType{ElementType::F64, "double", "double", "double", plain, plain},
};

std::string_view code_of(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::Sum:
    case ReduceOperation::Mean: return "a + b";
    // A NaN on either side is the result, as on host devices.
    case ReduceOperation::Min: return "b < a || b != b ? b : a";
    case ReduceOperation::Max: return "b > a || b != b ? b : a";
    case ReduceOperation::Product: return "a * b";
  }
  return "";
}

// How ranks synchronize. One shot: every rank writes its data to every other rank, in lines of 16 bytes. Each half of a
// line has four bytes of data next to the operation's epoch and is written at once, so a matching epoch means that the
// data has arrived. Two shots: every rank writes to each other rank the share that the other one reduces. It then
// reduces its own share and writes the result to all ranks, and each rank copies the results that arrive to their
// destination. Blocks of the same number synchronize twice, by flags: they access the same locations.
//
// reduce_scatter (a block of each rank for each other rank), all_gather and broadcast (a block of one rank for all) do
// the first half of two shots: the blocks are written to the inputs of the other ranks, and reduced or copied from
// there.
//
// Memory is read before it is written again. One shot: memory is written again two operations later, since even and odd
// epochs have separate memory. A rank that is two operations ahead has received the data of the operation in between
// from all other ranks. Two shots, inputs: a rank returns only when all others have reduced. Two shots, results: they
// are written when all others have begun the operation, and so have completed the one before.
//
// All ranks combine in the order of ranks, so that the bits are the same everywhere. Data next to an epoch is the idea
// of NCCL's LL protocol; one and two shots are known from the custom all-reduce kernels of inference engines.
constexpr std::string_view common = R"cuda(
using u32 = unsigned;
using u64 = unsigned long long;

struct Peers { char* at[RANKS]; };
struct Line { u32 data[2]; };

#if REDUCES
__device__ inline float half_to_float(unsigned short x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
  return f;
}
__device__ inline unsigned short float_to_half(float x) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
__device__ inline unsigned short float_to_bf16(float x) {
  unsigned short h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}

// An exact sum of as many elements as there are ranks: the sum of what each is of so many, and of what is left over.
struct Quotient {
  Element whole;
  int rest;

  // One RANKSth of the sum, cut towards 0.
  __device__ Element mean() const {
    const Element mean = whole + static_cast<Element>(rest / static_cast<int>(RANKS));
    const int left = rest % static_cast<int>(RANKS);
    if (mean > 0 && left < 0) return mean - 1;
    if (mean < 0 && left > 0) return mean + 1;
    return mean;
  }
};

__device__ inline Accumulator load_element(Element x) { return static_cast<Accumulator>(LOAD); }
__device__ inline Element store_element(Accumulator x) { return static_cast<Element>(STORE); }
__device__ inline Accumulator combine(Accumulator a, Accumulator b) { return COMBINE; }
#endif

// So many bytes, of which as many are there as the data has.
template <int BYTES>
struct Unit {
  static constexpr int words = BYTES / 4;
  static constexpr int lanes = BYTES / sizeof(Element);
  union {
    u32 word[words];
    Element element[lanes];
  };

  __device__ void load(const char* data, u64 bytes, u64 i) {
    const u64 at = i * BYTES;
    if (at + BYTES <= bytes && reinterpret_cast<u64>(data) % BYTES == 0) {
      if constexpr (BYTES == 16) {
        const uint4 v = *reinterpret_cast<const uint4*>(data + at);
        word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
      } else {
        const uint2 v = *reinterpret_cast<const uint2*>(data + at);
        word[0] = v.x, word[1] = v.y;
      }
      return;
    }
#pragma unroll
    for (int w = 0; w < words; ++w) word[w] = 0;
#pragma unroll
    for (int e = 0; e < lanes; ++e)
      if (at + (e + 1) * sizeof(Element) <= bytes) element[e] = reinterpret_cast<const Element*>(data + at)[e];
  }
  __device__ void store(char* data, u64 bytes, u64 i) const {
    const u64 at = i * BYTES;
    if (at + BYTES <= bytes && reinterpret_cast<u64>(data) % BYTES == 0) {
      if constexpr (BYTES == 16) {
        *reinterpret_cast<uint4*>(data + at) = make_uint4(word[0], word[1], word[2], word[3]);
      } else {
        *reinterpret_cast<uint2*>(data + at) = make_uint2(word[0], word[1]);
      }
      return;
    }
#pragma unroll
    for (int e = 0; e < lanes; ++e)
      if (at + (e + 1) * sizeof(Element) <= bytes) reinterpret_cast<Element*>(data + at)[e] = element[e];
  }
};

#if REDUCES
template <int BYTES>
struct Sum {
  Accumulator lane[Unit<BYTES>::lanes];

  __device__ void first(const Unit<BYTES>& unit) {
#pragma unroll
    for (int e = 0; e < unit.lanes; ++e) lane[e] = load_element(unit.element[e]);
  }
  __device__ void next(const Unit<BYTES>& unit) {
#pragma unroll
    for (int e = 0; e < unit.lanes; ++e) lane[e] = combine(lane[e], load_element(unit.element[e]));
  }
  __device__ Unit<BYTES> result() const {
    Unit<BYTES> unit;
#pragma unroll
    for (int e = 0; e < unit.lanes; ++e) unit.element[e] = store_element(lane[e] DIVIDE);
    return unit;
  }
};

// In the order of ranks.
template <int BYTES>
__device__ inline Unit<BYTES> sum_of(const Unit<BYTES> (&unit)[RANKS]) {
  Sum<BYTES> sum;
  sum.first(unit[0]);
#pragma unroll
  for (u32 r = 1; r < RANKS; ++r) sum.next(unit[r]);
  return sum.result();
}
#endif

// All earlier work on the stream has completed. Set by a thread that small data leaves idle: the others need not wait.
struct Count {
  u32* counter;
  u32 value;
  __device__ void set() const {
    if (blockIdx.x == 0 && threadIdx.x == THREADS - 1)
      asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
  }
};

// The host has given the operation up. Asked for now and then: the word is in memory of the host.
struct Patience {
  const volatile u32* given_up;
  u32 looks = 0;
  __device__ bool over() { return ++looks % 4096 == 0 && *given_up != 0; }
};

// Every unit is one thread's, of the same number wherever there are as many blocks.
template <class Body>
__device__ inline void each_unit(u64 units, const Body& body) {
  for (u64 i = u64{blockIdx.x} * THREADS + threadIdx.x; i < units; i += u64{gridDim.x} * THREADS) body(i);
}
__device__ inline u64 units_in(u64 bytes) { return (bytes + 15) / 16; }

#if REDUCES
extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_one_shot)(const char* in, char* out, u64 bytes, const __grid_constant__ Peers peers, u32 rank, u32 epoch,
                    u64 rank_stride, const volatile u32* given_up, const Count count) {
  count.set();
  const u64 units = (bytes + 7) / 8;
  Patience patience{given_up};
  for (u64 i = u64{blockIdx.x} * THREADS + threadIdx.x; i < units; i += u64{gridDim.x} * THREADS) {
    Unit<8> own;
    own.load(in, bytes, i);
#pragma unroll
    for (u32 r = 0; r < RANKS; ++r)
      if (r != rank)
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(peers.at[r] + rank * rank_stride + i * 16),
                     "r"(own.word[0]), "r"(epoch), "r"(own.word[1])
                     : "memory");
    Sum<8> sum;
#pragma unroll
    for (u32 r = 0; r < RANKS; ++r) {
      Unit<8> unit = own;
      if (r != rank) {
        const char* const line = peers.at[rank] + r * rank_stride + i * 16;
        u32 first, second;
        do {
          asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(unit.word[0]), "=r"(first), "=r"(unit.word[1]), "=r"(second)
                       : "l"(line)
                       : "memory");
          if (patience.over()) return;
        } while (first != epoch || second != epoch);
      }
      if (r == 0) sum.first(unit); else sum.next(unit);
    }
    sum.result().store(out, bytes, i);
  }
}
#endif

// Blocks of this number meet. False: given up.
__device__ inline bool meet(const Peers& flags, u32 rank, u32 stage, u32 epoch, Patience& patience) {
  const u32 slot = (stage * BLOCKS + blockIdx.x) * RANKS;
  __syncthreads();
  bool met = true;
  if (threadIdx.x < RANKS && threadIdx.x != rank) {
    u32* const theirs = reinterpret_cast<u32*>(flags.at[threadIdx.x]) + slot + rank;
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(theirs), "r"(epoch) : "memory");
    const u32* const ours = reinterpret_cast<const u32*>(flags.at[rank]) + slot + threadIdx.x;
    u32 found;
    do {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(ours) : "memory");
      if (found != epoch && patience.over()) met = false;
    } while (found != epoch && met);
  }
  return __syncthreads_and(met);
}

#if REDUCES
// The data of one operation.
struct Whole {
  const char* in;
  char* out;
  u64 bytes;

  __device__ u64 units() const { return units_in(bytes); }
  __device__ void load(Unit<16>& unit, u64 i) const { unit.load(in, bytes, i); }
  __device__ void store(const Unit<16>& unit, u64 i) const {
    if (out != nullptr) unit.store(out, bytes, i);  // null: the result is for others
  }
};

// That of a group, as if it lay one behind the other, each from a whole unit on.
struct Pieces {
  u32 count;
  u32 first[PIECES + 1];  // units; behind the last, too
  u32 bytes[PIECES];
  const char* in[PIECES];
  char* out[PIECES];

  __device__ u64 units() const { return first[count]; }
  __device__ u32 at(u64 i) const {
    u32 low = 0, high = count;
    while (high - low > 1) {
      const u32 middle = (low + high) / 2;
      if (first[middle] <= i) low = middle; else high = middle;
    }
    return low;
  }
  __device__ void load(Unit<16>& unit, u64 i) const {
    const u32 piece = at(i);
    unit.load(in[piece], bytes[piece], i - first[piece]);
  }
  __device__ void store(const Unit<16>& unit, u64 i) const {
    const u32 piece = at(i);
    unit.store(out[piece], bytes[piece], i - first[piece]);
  }
};

template <class Data>
__device__ inline void two_shot(const Data& data, const Peers& flags, const Peers& inputs, const Peers& results,
                                u32 rank, u32 epoch, const volatile u32* given_up) {
  const u64 units = data.units();
  const u64 share = (units + RANKS - 1) / RANKS;
  Patience patience{given_up};
  each_unit(share, [&](u64 j) {
#pragma unroll
    for (u32 k = 1; k < RANKS; ++k) {
      const u32 s = (rank + k) % RANKS;  // not all to the same one first
      const u64 i = s * share + j;
      if (i >= units) continue;
      Unit<16> unit;
      data.load(unit, i);
      unit.store(inputs.at[s], ~u64{0}, rank * share + j);
    }
  });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  each_unit(share, [&](u64 j) {
    const u64 i = rank * share + j;
    if (i >= units) return;
    Unit<16> unit[RANKS];
#pragma unroll
    for (u32 r = 0; r < RANKS; ++r)
      if (r == rank) data.load(unit[r], i); else unit[r].load(inputs.at[rank], ~u64{0}, r * share + j);
    const Unit<16> result = sum_of(unit);
    data.store(result, i);
#pragma unroll
    for (u32 r = 0; r < RANKS; ++r)
      if (r != rank) result.store(results.at[r], ~u64{0}, i);
  });
  if (!meet(flags, rank, 1, epoch, patience)) return;
  each_unit(share, [&](u64 j) {
#pragma unroll
    for (u32 k = 1; k < RANKS; ++k) {
      const u64 i = (rank + k) % RANKS * share + j;
      if (i >= units) continue;
      Unit<16> unit;
      unit.load(results.at[rank], ~u64{0}, i);
      data.store(unit, i);
    }
  });
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_two_shot)(const __grid_constant__ Whole data, const __grid_constant__ Peers flags,
                    const __grid_constant__ Peers inputs, const __grid_constant__ Peers results, u32 rank, u32 epoch,
                    const volatile u32* given_up, const Count count) {
  count.set();
  two_shot(data, flags, inputs, results, rank, epoch, given_up);
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_two_shot_group)(const __grid_constant__ Pieces data, const __grid_constant__ Peers flags,
                          const __grid_constant__ Peers inputs, const __grid_constant__ Peers results, u32 rank,
                          u32 epoch, const volatile u32* given_up, const Count count) {
  count.set();
  two_shot(data, flags, inputs, results, rank, epoch, given_up);
}

#endif

// Where there is a block of `bytes` from each rank, or for each. They meet once when all have written, and once when all
// have read.

#if REDUCES
extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_reduce_scatter)(const char* in, char* out, u64 bytes, const __grid_constant__ Peers flags,
                          const __grid_constant__ Peers inputs, u32 rank, u32 epoch, const volatile u32* given_up,
                          const Count count) {
  count.set();
  const u64 units = units_in(bytes);
  Patience patience{given_up};
  each_unit(units, [&](u64 j) {
#pragma unroll
    for (u32 k = 1; k < RANKS; ++k) {
      const u32 s = (rank + k) % RANKS;
      Unit<16> unit;
      unit.load(in + s * bytes, bytes, j);
      unit.store(inputs.at[s], ~u64{0}, rank * units + j);
    }
  });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  each_unit(units, [&](u64 j) {
    Unit<16> unit[RANKS];
#pragma unroll
    for (u32 r = 0; r < RANKS; ++r)
      if (r == rank) unit[r].load(in + rank * bytes, bytes, j); else unit[r].load(inputs.at[rank], ~u64{0}, r * units + j);
    sum_of(unit).store(out, bytes, j);
  });
  meet(flags, rank, 1, epoch, patience);
}
#else
extern "C" __global__ void __launch_bounds__(THREADS)
cox_all_gather(const char* in, char* out, u64 bytes, const __grid_constant__ Peers flags,
               const __grid_constant__ Peers inputs, u32 rank, u32 epoch, const volatile u32* given_up,
               const Count count) {
  count.set();
  const u64 units = units_in(bytes);
  Patience patience{given_up};
  each_unit(units, [&](u64 j) {
    Unit<16> unit;
    unit.load(in, bytes, j);
#pragma unroll
    for (u32 k = 1; k < RANKS; ++k) unit.store(inputs.at[(rank + k) % RANKS], ~u64{0}, rank * units + j);
    if (in != out + rank * bytes) unit.store(out + rank * bytes, bytes, j);
  });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  each_unit(units, [&](u64 j) {
#pragma unroll
    for (u32 k = 1; k < RANKS; ++k) {
      const u32 r = (rank + k) % RANKS;
      Unit<16> unit;
      unit.load(inputs.at[rank], ~u64{0}, r * units + j);
      unit.store(out + r * bytes, bytes, j);
    }
  });
  meet(flags, rank, 1, epoch, patience);
}

extern "C" __global__ void __launch_bounds__(THREADS)
cox_broadcast(const char* in, char* out, u64 bytes, const __grid_constant__ Peers flags,
              const __grid_constant__ Peers inputs, u32 rank, u32 root, u32 epoch, const volatile u32* given_up,
              const Count count) {
  count.set();
  const u64 units = units_in(bytes);
  Patience patience{given_up};
  if (rank == root)
    each_unit(units, [&](u64 j) {
      Unit<16> unit;
      unit.load(in, bytes, j);
#pragma unroll
      for (u32 k = 1; k < RANKS; ++k) unit.store(inputs.at[(rank + k) % RANKS], ~u64{0}, j);
      if (in != out) unit.store(out, bytes, j);
    });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  if (rank != root)
    each_unit(units, [&](u64 j) {
      Unit<16> unit;
      unit.load(inputs.at[rank], ~u64{0}, j);
      unit.store(out, bytes, j);
    });
  meet(flags, rank, 1, epoch, patience);
}
#endif
)cuda";

}  // namespace

bool has_peer_kernels(ElementType type) noexcept {
  return std::ranges::find(codes_of_types, type, &CodeOfType::type) != codes_of_types.end();
}

std::string peer_kernel_name(std::string_view kernel, ElementType type, ReduceOperation operation) {
  std::string name(kernel);
  name += "_" + std::string(to_string(type)) + "_" + std::string(to_string(operation));
  return name;
}

std::string peer_kernels_source(const PeerKernelCode& code, std::size_t ranks) {
  std::string source;
  const auto define = [&](std::string_view name, std::string_view text) {
    source += "#define ";
    source += name;
    source += ' ';
    source += text;
    source += '\n';
  };
  define("RANKS", std::to_string(ranks));
  define("THREADS", std::to_string(peer_kernel_threads));
  define("BLOCKS", std::to_string(peer_kernel_blocks));
  define("PIECES", std::to_string(peer_kernel_pieces));
  define("REDUCES", code.reduces ? "1" : "0");
  if (!code.reduces) return source + "using Element = unsigned char;\n" + std::string(common);
  for (const CodeOfType& of_type : codes_of_types) {
    if (of_type.type != code.type) continue;
    const bool mean = code.operation == ReduceOperation::Mean;
    const bool quotient = mean && of_type.exact == by_quotient;
    source += "using Element = " + std::string(of_type.element) +
              ";\nstruct Quotient;\nusing Accumulator = " + std::string(mean ? of_type.exact : of_type.accumulator) +
              ";\n";
    define("NAMED(kernel)", peer_kernel_name("kernel##", code.type, code.operation));
    define("LOAD", quotient ? "Quotient{static_cast<Element>(x / RANKS), static_cast<int>(x % RANKS)}"
                            : "(" + std::string(of_type.load) + ")");
    define("STORE", quotient ? "x.mean()" : "(" + std::string(of_type.store) + ")");
    define("COMBINE", quotient ? "Quotient{a.whole + b.whole, a.rest + b.rest}"
                               : "(" + std::string(code_of(code.operation)) + ")");
    define("DIVIDE", mean && !quotient ? "/ static_cast<Accumulator>(RANKS)" : "");
    return source + std::string(common);
  }
  return {};
}

}  // namespace cox::detail
