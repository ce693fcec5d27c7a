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

// How ranks learn that data has arrived. By lines (NCCL's LL protocol): a line of 16 bytes consists of two halves, each
// with four bytes of data next to the operation's epoch. A half is written at once, so a matching epoch means that the
// data is there: one way over the link, and twice the bytes. By flags: blocks of the same number, which access the same
// locations, write their data, then their epoch as a flag, and wait for the flags of the others.
//
// One shot: every rank writes its data to every other rank, and each reduces all of it. Two shots: every rank writes to
// each other rank the share that the other one reduces. It then reduces its own share and writes the result to all
// ranks, and each rank copies the results that arrive to their destination. reduce_scatter, all_gather and broadcast
// write a block for each rank, or one for all.
//
// Memory is read before it is written again, because each kernel waits for something from every other rank. So when a
// kernel has ended, all other ranks have begun theirs, and have completed the one before. Kernels of even and odd
// epochs have separate memory for lines, and for what is written before flags: it is written again two kernels later,
// when the kernel that reads it has completed on all ranks. Results of two shots are written when all others have begun
// the operation.
//
// All ranks combine in the order of ranks, so that the bits are the same everywhere. One and two shots are known from
// the custom all-reduce kernels of inference engines.
constexpr std::string_view common = R"cuda(
using u32 = unsigned;
using u64 = unsigned long long;

struct Peers { char* at[RANKS]; };

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
    if (is_whole(data, bytes, i)) load_whole(data, i); else load_elements(data, bytes, i);
  }
  __device__ void store(char* data, u64 bytes, u64 i) const {
    if (is_whole(data, bytes, i)) store_whole(data, i); else store_elements(data, bytes, i);
  }

  static __device__ bool is_whole(const char* data, u64 bytes, u64 i) {
    return (i + 1) * BYTES <= bytes && reinterpret_cast<u64>(data) % BYTES == 0;
  }
  // Precondition: is_whole().
  __device__ void load_whole(const char* data, u64 i) {
    if constexpr (BYTES == 16) {
      const uint4 v = reinterpret_cast<const uint4*>(data)[i];
      word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    } else {
      const uint2 v = reinterpret_cast<const uint2*>(data)[i];
      word[0] = v.x, word[1] = v.y;
    }
  }
  __device__ void store_whole(char* data, u64 i) const {
    if constexpr (BYTES == 16) {
      reinterpret_cast<uint4*>(data)[i] = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
      reinterpret_cast<uint2*>(data)[i] = make_uint2(word[0], word[1]);
    }
  }
  __device__ void load_elements(const char* data, u64 bytes, u64 i) {
    const u64 at = i * BYTES;
#pragma unroll
    for (int w = 0; w < words; ++w) word[w] = 0;
#pragma unroll
    for (int e = 0; e < lanes; ++e)
      if (at + (e + 1) * sizeof(Element) <= bytes) element[e] = reinterpret_cast<const Element*>(data + at)[e];
  }
  __device__ void store_elements(char* data, u64 bytes, u64 i) const {
    const u64 at = i * BYTES;
#pragma unroll
    for (int e = 0; e < lanes; ++e)
      if (at + (e + 1) * sizeof(Element) <= bytes) reinterpret_cast<Element*>(data + at)[e] = element[e];
  }

  // As a line with the operation's epoch.
  __device__ void send(char* line, u32 epoch) const {
    static_assert(BYTES == 8);
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(line), "r"(word[0]), "r"(epoch), "r"(word[1])
                 : "memory");
  }
  // Waits for the line. Returns false if the operation was aborted.
  template <class Patience>
  __device__ bool receive(const char* line, u32 epoch, Patience& patience) {
    static_assert(BYTES == 8);
    u32 first, second;
    do {
      asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word[0]), "=r"(first), "=r"(word[1]), "=r"(second)
                   : "l"(line)
                   : "memory");
      if (patience.over()) return false;
    } while (first != epoch || second != epoch);
    return true;
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

// Units are accessed as a whole where all memory is aligned, and up to the last one that is whole; else by elements.
struct AsWhole {
  static __device__ void load(Unit<16>& unit, const char* data, u64, u64 i) { unit.load_whole(data, i); }
  static __device__ void store(const Unit<16>& unit, char* data, u64, u64 i) { unit.store_whole(data, i); }
};
struct ByElements {
  static __device__ void load(Unit<16>& unit, const char* data, u64 bytes, u64 i) {
    unit.load_elements(data, bytes, i);
  }
  static __device__ void store(const Unit<16>& unit, char* data, u64 bytes, u64 i) {
    unit.store_elements(data, bytes, i);
  }
};
__device__ inline bool is_aligned(const void* data) { return reinterpret_cast<u64>(data) % 16 == 0; }

// Each unit is accessed by one thread, whose number is the same in all phases and on all ranks. A thread loads BATCH
// items before it uses the first. The first units, `whole` of them, are accessed as a whole.
template <int BATCH, class Item, class Load, class Use>
__device__ inline void each_unit(u64 units, u64 whole, const Load& load, const Use& use) {
  const u64 step = u64{gridDim.x} * THREADS;
  const u64 first = u64{blockIdx.x} * THREADS + threadIdx.x;
  for (u64 i = first; i < whole; i += BATCH * step) {
    Item item[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; ++b)
      if (i + b * step < whole) load(AsWhole(), item[b], i + b * step);
#pragma unroll
    for (int b = 0; b < BATCH; ++b)
      if (i + b * step < whole) use(AsWhole(), item[b], i + b * step);
  }
  for (u64 i = whole > first ? first + (whole - first + step - 1) / step * step : first; i < units; i += step) {
    Item item;
    load(ByElements(), item, i);
    use(ByElements(), item, i);
  }
}
struct OfRanks { Unit<16> unit[RANKS]; };
constexpr int batch = 4;
constexpr int batch_of_ranks = RANKS == 2 ? 4 : 1;
__device__ inline u64 units_in(u64 bytes) { return (bytes + 15) / 16; }
__device__ inline u64 short_units_in(u64 bytes) { return (bytes + 7) / 8; }

// Where a rank finds the lines from another one.
struct Lines {
  const Peers& peers;
  u64 stride;
  __device__ char* line(u32 to, u32 from, u64 i) const { return peers.at[to] + from * stride + i * 16; }
};

template <class Body>
__device__ inline void each_short_unit(u64 units, const Body& body) {
  for (u64 i = u64{blockIdx.x} * THREADS + threadIdx.x; i < units; i += u64{gridDim.x} * THREADS)
    if (!body(i)) return;
}
// Calls body(r, k) for each other rank r. Not all ranks begin with the same one. `k`, from 1 on, is a constant of the
// compiler, so that what it indexes can be in registers.
template <class Body>
__device__ inline void each_other(u32 rank, const Body& body) {
#pragma unroll
  for (u32 k = 1; k < RANKS; ++k) body((rank + k) % RANKS, k);
}

#if REDUCES
// The sum of `own` and of the lines of the other ranks. Returns false if the operation was aborted.
__device__ inline bool sum_of_lines(Unit<8>& result, const Unit<8>& own, const Lines& lines, u32 rank, u64 i, u32 epoch,
                                    Patience& patience) {
  Sum<8> sum;
#pragma unroll
  for (u32 r = 0; r < RANKS; ++r) {
    Unit<8> unit = own;
    if (r != rank && !unit.receive(lines.line(rank, r, i), epoch, patience)) return false;
    if (r == 0) sum.first(unit); else sum.next(unit);
  }
  result = sum.result();
  return true;
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_one_shot_lines)(const char* in, char* out, u64 bytes, const __grid_constant__ Peers peers, u64 stride,
                          u32 rank, u32 epoch, const volatile u32* given_up, const Count count) {
  count.set();
  const Lines lines{peers, stride};
  Patience patience{given_up};
  each_short_unit(short_units_in(bytes), [&](u64 i) {
    Unit<8> unit;
    unit.load(in, bytes, i);
    each_other(rank, [&](u32 r, u32) { unit.send(lines.line(r, rank, i), epoch); });
    if (!sum_of_lines(unit, unit, lines, rank, i, epoch, patience)) return false;
    if (out != nullptr) unit.store(out, bytes, i);  // null: the result is for others
    return true;
  });
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_reduce_scatter_lines)(const char* in, char* out, u64 bytes, const __grid_constant__ Peers peers, u64 stride,
                                u32 rank, u32 epoch, const volatile u32* given_up, const Count count) {
  count.set();
  const Lines lines{peers, stride};
  Patience patience{given_up};
  each_short_unit(short_units_in(bytes), [&](u64 i) {
    Unit<8> unit;
    each_other(rank, [&](u32 r, u32) {
      unit.load(in + r * bytes, bytes, i);
      unit.send(lines.line(r, rank, i), epoch);
    });
    unit.load(in + rank * bytes, bytes, i);
    if (!sum_of_lines(unit, unit, lines, rank, i, epoch, patience)) return false;
    unit.store(out, bytes, i);
    return true;
  });
}
#else
extern "C" __global__ void __launch_bounds__(THREADS)
cox_all_gather_lines(const char* in, char* out, u64 bytes, const __grid_constant__ Peers peers, u64 stride, u32 rank,
                     u32 epoch, const volatile u32* given_up, const Count count) {
  count.set();
  const Lines lines{peers, stride};
  Patience patience{given_up};
  each_short_unit(short_units_in(bytes), [&](u64 i) {
    Unit<8> unit;
    unit.load(in, bytes, i);
    each_other(rank, [&](u32 r, u32) { unit.send(lines.line(r, rank, i), epoch); });
    if (in != out + rank * bytes) unit.store(out + rank * bytes, bytes, i);
    bool received = true;
    each_other(rank, [&](u32 r, u32) {
      received = received && unit.receive(lines.line(rank, r, i), epoch, patience);
      if (received) unit.store(out + r * bytes, bytes, i);
    });
    return received;
  });
}

// Each rank writes its first line to all others, if only to show that it has begun.
extern "C" __global__ void __launch_bounds__(THREADS)
cox_broadcast_lines(const char* in, char* out, u64 bytes, const __grid_constant__ Peers peers, u64 stride, u32 rank,
                    u32 root, u32 epoch, const volatile u32* given_up, const Count count) {
  count.set();
  const Lines lines{peers, stride};
  Patience patience{given_up};
  each_short_unit(short_units_in(bytes), [&](u64 i) {
    Unit<8> unit{};
    if (rank == root) unit.load(in, bytes, i);
    if (rank == root || i == 0) each_other(rank, [&](u32 r, u32) { unit.send(lines.line(r, rank, i), epoch); });
    if (rank == root && in != out) unit.store(out, bytes, i);
    bool received = true;
    each_other(rank, [&](u32 r, u32) {
      if (r == root || i == 0) received = received && unit.receive(lines.line(rank, r, i), epoch, patience);
      if (r == root && received) unit.store(out, bytes, i);
    });
    return received;
  });
}
#endif

// A barrier of the blocks with this index on all ranks. Returns false if the operation was aborted.
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

// What is written to a rank before flags: data of each other rank, one behind the other.
struct Inputs {
  const Peers& at;
  u64 units;  // of each rank
  __device__ void write(u32 to, u32 from, u64 i, const Unit<16>& unit) const {
    unit.store_whole(at.at[to], (from < to ? from : from - 1) * units + i);
  }
  __device__ void read(u32 to, u32 from, u64 i, Unit<16>& unit) const {
    unit.load_whole(at.at[to], (from < to ? from : from - 1) * units + i);
  }
};

#if REDUCES
// The data of one operation.
struct Whole {
  const char* in;
  char* out;
  u64 bytes;

  __device__ u64 units() const { return units_in(bytes); }
  __device__ u64 whole() const { return is_aligned(in) && is_aligned(out) ? bytes / 16 : 0; }
  template <class Access>
  __device__ void load(Access, Unit<16>& unit, u64 i) const {
    Access::load(unit, in, bytes, i);
  }
  template <class Access>
  __device__ void store(Access, const Unit<16>& unit, u64 i) const {
    if (out != nullptr) Access::store(unit, out, bytes, i);  // null: the result is for others
  }
};

// That of a group, as if it lay one behind the other, each from a whole unit on.
struct Pieces {
  u32 count;
  u32 all_whole;          // whether all units can be accessed as a whole
  float density;          // pieces per unit
  u32 first[PIECES + 1];  // units; behind the last, too
  u32 bytes[PIECES];
  const char* in[PIECES];
  char* out[PIECES];

  __device__ u64 units() const { return first[count]; }
  // The piece of a unit. Pieces of one size, which are usual, are found at once.
  __device__ u32 at(u32 i) const {
    const u32 guess = min(static_cast<u32>(static_cast<float>(i) * density), count - 1);
    if (first[guess] <= i && i < first[guess + 1]) return guess;
    u32 low = 0, high = count;
    while (high - low > 1) {
      const u32 middle = (low + high) / 2;
      if (first[middle] <= i) low = middle; else high = middle;
    }
    return low;
  }
  __device__ u64 whole() const { return all_whole != 0 ? units() : 0; }
  __device__ void load(AsWhole, Unit<16>& unit, u64 i) const {
    const u32 piece = at(i);
    unit.load_whole(in[piece], i - first[piece]);
  }
  __device__ void store(AsWhole, const Unit<16>& unit, u64 i) const {
    const u32 piece = at(i);
    unit.store_whole(out[piece], i - first[piece]);
  }
  // These may be whole, too.
  __device__ void load(ByElements, Unit<16>& unit, u64 i) const {
    const u32 piece = at(i);
    unit.load(in[piece], bytes[piece], i - first[piece]);
  }
  __device__ void store(ByElements, const Unit<16>& unit, u64 i) const {
    const u32 piece = at(i);
    unit.store(out[piece], bytes[piece], i - first[piece]);
  }
};

template <class Data>
__device__ inline void one_shot(const Data& data, const Peers& flags, const Peers& peers, u32 rank, u32 epoch,
                                const volatile u32* given_up) {
  const Inputs inputs{peers, data.units()};
  Patience patience{given_up};
  each_unit<batch, Unit<16>>(
      inputs.units, data.whole(), [&](auto access, Unit<16>& unit, u64 i) { data.load(access, unit, i); },
      [&](auto, const Unit<16>& unit, u64 i) {
        each_other(rank, [&](u32 r, u32) { inputs.write(r, rank, i, unit); });
      });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  each_unit<batch_of_ranks, OfRanks>(
      inputs.units, data.whole(),
      [&](auto access, OfRanks& of, u64 i) {
#pragma unroll
        for (u32 r = 0; r < RANKS; ++r)
          if (r == rank) data.load(access, of.unit[r], i); else inputs.read(rank, r, i, of.unit[r]);
      },
      [&](auto access, const OfRanks& of, u64 i) { data.store(access, sum_of(of.unit), i); });
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_one_shot)(const __grid_constant__ Whole data, const __grid_constant__ Peers flags,
                    const __grid_constant__ Peers inputs, u32 rank, u32 epoch, const volatile u32* given_up,
                    const Count count) {
  count.set();
  one_shot(data, flags, inputs, rank, epoch, given_up);
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_one_shot_group)(const __grid_constant__ Pieces data, const __grid_constant__ Peers flags,
                          const __grid_constant__ Peers inputs, u32 rank, u32 epoch, const volatile u32* given_up,
                          const Count count) {
  count.set();
  one_shot(data, flags, inputs, rank, epoch, given_up);
}

#if RANKS > 2  // two ranks would write as much, and wait twice
// How many of the first units of every share are whole. Only the last unit of the data may be incomplete.
template <class Data>
__device__ inline u64 whole_of_shares(const Data& data, u64 share) {
  const u64 whole = data.whole();
  const u64 units = data.units();
  if (whole == units) return share;
  return whole == 0 ? 0 : (units - 1) % share;
}

template <class Data>
__device__ inline void two_shot(const Data& data, const Peers& flags, const Peers& peers, const Peers& results,
                                u32 rank, u32 epoch, const volatile u32* given_up) {
  const u64 units = data.units();
  const Inputs inputs{peers, (units + RANKS - 1) / RANKS};
  const u64 share = inputs.units;
  Patience patience{given_up};
  // Of all shares, the first units that are whole in the last one are whole.
  const u64 whole = whole_of_shares(data, share);
  each_unit<batch_of_ranks, OfRanks>(
      share, whole,
      [&](auto access, OfRanks& of, u64 j) {
        each_other(rank, [&](u32 s, u32 k) {
          if (s * share + j < units) data.load(access, of.unit[k], s * share + j);
        });
      },
      [&](auto, const OfRanks& of, u64 j) {
        each_other(rank, [&](u32 s, u32 k) {
          if (s * share + j < units) inputs.write(s, rank, j, of.unit[k]);
        });
      });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  const u64 first = rank * share;
  const u64 own = first < units ? min(share, units - first) : 0;
  each_unit<batch_of_ranks, OfRanks>(
      own, min(own, whole),
      [&](auto access, OfRanks& of, u64 j) {
#pragma unroll
        for (u32 r = 0; r < RANKS; ++r)
          if (r == rank) data.load(access, of.unit[r], first + j); else inputs.read(rank, r, j, of.unit[r]);
      },
      [&](auto access, const OfRanks& of, u64 j) {
        const Unit<16> result = sum_of(of.unit);
        data.store(access, result, first + j);
        each_other(rank, [&](u32 r, u32) { result.store_whole(results.at[r], first + j); });
      });
  if (!meet(flags, rank, 1, epoch, patience)) return;
  each_unit<batch_of_ranks, OfRanks>(
      share, whole,
      [&](auto, OfRanks& of, u64 j) {
        each_other(rank, [&](u32 s, u32 k) {
          if (s * share + j < units) of.unit[k].load_whole(results.at[rank], s * share + j);
        });
      },
      [&](auto access, const OfRanks& of, u64 j) {
        each_other(rank, [&](u32 s, u32 k) {
          if (s * share + j < units) data.store(access, of.unit[k], s * share + j);
        });
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
#endif

// There is a block of `bytes` from each rank, or for each, one behind the other. They are all aligned only if a block
// consists of whole units.
__device__ inline u64 whole_of_blocks(const char* in, const char* out, u64 bytes) {
  return is_aligned(in) && is_aligned(out) && bytes % 16 == 0 ? bytes / 16 : 0;
}

#if REDUCES
extern "C" __global__ void __launch_bounds__(THREADS)
NAMED(cox_reduce_scatter)(const char* in, char* out, u64 bytes, const __grid_constant__ Peers flags,
                          const __grid_constant__ Peers peers, u32 rank, u32 epoch, const volatile u32* given_up,
                          const Count count) {
  count.set();
  const Inputs inputs{peers, units_in(bytes)};
  const u64 whole = whole_of_blocks(in, out, bytes);
  Patience patience{given_up};
  each_unit<batch_of_ranks, OfRanks>(
      inputs.units, whole,
      [&](auto access, OfRanks& of, u64 i) {
        each_other(rank, [&](u32 r, u32 k) { access.load(of.unit[k], in + r * bytes, bytes, i); });
      },
      [&](auto, const OfRanks& of, u64 i) {
        each_other(rank, [&](u32 r, u32 k) { inputs.write(r, rank, i, of.unit[k]); });
      });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  each_unit<batch_of_ranks, OfRanks>(
      inputs.units, whole,
      [&](auto access, OfRanks& of, u64 i) {
#pragma unroll
        for (u32 r = 0; r < RANKS; ++r)
          if (r == rank) access.load(of.unit[r], in + rank * bytes, bytes, i); else inputs.read(rank, r, i, of.unit[r]);
      },
      [&](auto access, const OfRanks& of, u64 i) { access.store(sum_of(of.unit), out, bytes, i); });
}
#else
extern "C" __global__ void __launch_bounds__(THREADS)
cox_all_gather(const char* in, char* out, u64 bytes, const __grid_constant__ Peers flags,
               const __grid_constant__ Peers peers, u32 rank, u32 epoch, const volatile u32* given_up,
               const Count count) {
  count.set();
  const Inputs inputs{peers, units_in(bytes)};
  const bool copies = in != out + rank * bytes;
  const u64 whole = whole_of_blocks(in, out, bytes);
  Patience patience{given_up};
  each_unit<batch, Unit<16>>(
      inputs.units, whole, [&](auto access, Unit<16>& unit, u64 i) { access.load(unit, in, bytes, i); },
      [&](auto access, const Unit<16>& unit, u64 i) {
        each_other(rank, [&](u32 r, u32) { inputs.write(r, rank, i, unit); });
        if (copies) access.store(unit, out + rank * bytes, bytes, i);
      });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  each_unit<batch_of_ranks, OfRanks>(
      inputs.units, whole,
      [&](auto, OfRanks& of, u64 i) { each_other(rank, [&](u32 r, u32 k) { inputs.read(rank, r, i, of.unit[k]); }); },
      [&](auto access, const OfRanks& of, u64 i) {
        each_other(rank, [&](u32 r, u32 k) { access.store(of.unit[k], out + r * bytes, bytes, i); });
      });
}

extern "C" __global__ void __launch_bounds__(THREADS)
cox_broadcast(const char* in, char* out, u64 bytes, const __grid_constant__ Peers flags,
              const __grid_constant__ Peers inputs, u32 rank, u32 root, u32 epoch, const volatile u32* given_up,
              const Count count) {
  count.set();
  const u64 units = units_in(bytes);
  const u64 whole = whole_of_blocks(in, out, bytes);
  Patience patience{given_up};
  if (rank == root)
    each_unit<batch, Unit<16>>(
        units, whole, [&](auto access, Unit<16>& unit, u64 i) { access.load(unit, in, bytes, i); },
        [&](auto access, const Unit<16>& unit, u64 i) {
          each_other(rank, [&](u32 r, u32) { unit.store_whole(inputs.at[r], i); });
          if (in != out) access.store(unit, out, bytes, i);
        });
  if (!meet(flags, rank, 0, epoch, patience)) return;
  if (rank != root)
    each_unit<batch, Unit<16>>(
        units, whole, [&](auto, Unit<16>& unit, u64 i) { unit.load_whole(inputs.at[rank], i); },
        [&](auto access, const Unit<16>& unit, u64 i) { access.store(unit, out, bytes, i); });
}
#endif
)cuda";

}  // namespace

bool has_peer_kernels(ElementType type) noexcept {
  static constexpr auto with_kernels = [] {
    std::array<bool, element_types.size()> found{};
    for (const CodeOfType& code : codes_of_types) found[static_cast<std::size_t>(code.type)] = true;
    return found;
  }();
  return with_kernels[static_cast<std::size_t>(type)];
}

std::span<const PeerKernel> peer_kernels_of(const PeerKernelCode& code, std::size_t ranks) noexcept {
  static constexpr std::array reducing{PeerKernel::OneShotLines, PeerKernel::ReduceScatterLines, PeerKernel::OneShot,
                                       PeerKernel::OneShotGroup, PeerKernel::ReduceScatter,      PeerKernel::TwoShot,
                                       PeerKernel::TwoShotGroup};
  static constexpr std::array copying{PeerKernel::AllGatherLines, PeerKernel::BroadcastLines, PeerKernel::AllGather,
                                      PeerKernel::Broadcast};
  if (!code.reduces) return copying;
  return ranks > 2 ? std::span<const PeerKernel>(reducing) : std::span<const PeerKernel>(reducing).first(5);
}

std::string peer_kernel_name(PeerKernel kernel, const PeerKernelCode& code) {
  std::string name(peer_kernel_names[static_cast<std::size_t>(kernel)]);
  if (!code.reduces) return name;
  name += "_" + std::string(to_string(code.type)) + "_" + std::string(to_string(code.operation));
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
    define("NAMED(kernel)",
           "kernel##_" + std::string(to_string(code.type)) + "_" + std::string(to_string(code.operation)));
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
