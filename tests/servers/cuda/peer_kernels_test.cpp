// The kernels of small collectives, on one GPU: each rank on a stream of its own, its blocks beside those of the
// others. What is shown of the kernels does not depend on how many GPUs there are; that GPUs reach each other's memory
// is shown by cuda_collectives_test.cpp.

#include <coxswain/tests/servers/cuda/collective_values.hpp>
#include <coxswain/tests/servers/cuda/compiler.hpp>
#include <coxswain/tests/servers/cuda/open_cuda.hpp>
#include <coxswain/tests/servers/launch_on.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/reduction/reduce.hpp>
#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/loaded_kernel.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#include <coxswain/servers/cuda/peer/embedded_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::detail;
using namespace cox::test;

namespace {

/// Memory of the GPU at an address that kernels can be given.
class Buffer {
 public:
  Buffer(const CudaClient& client, const Bytes& bytes)
      : handle_(client.create(Bytes::copy_of(bytes.span()))), resource_(client.get_resource(handle_)) {}

  [[nodiscard]] const Handle& handle() const noexcept { return handle_; }
  [[nodiscard]] CUdeviceptr address() const noexcept { return resource_.resource.address; }
  [[nodiscard]] std::byte* at(std::size_t byte) const noexcept {
    return reinterpret_cast<std::byte*>(address()) + byte;
  }

 private:
  Handle handle_;
  ManagedResource<CudaResource> resource_;
};

class RanksOfOneGpu {
 public:
  using Parts = std::vector<NcclCalls>;  // by rank

  explicit RanksOfOneGpu(std::size_t ranks)
      : limits_(limits_of(ranks, describe_cuda_device(gpu_.device()).multiprocessors)),
        contexts_(ranks, CudaContext::open(0)),
        current_(*contexts_.front()),
        kernels_(std::vector<DeviceId>(ranks, gpu_.device()), contexts_, limits_),
        launched_(ranks),
        counters_(gpu_.client(), bytes_of(ElementType::U32, Values(ranks))) {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      COX_CUDA_TRY(stream_create(streams_.emplace_back().out(), CU_STREAM_NON_BLOCKING, 0));
  }
  RanksOfOneGpu(const RanksOfOneGpu&) = delete;
  RanksOfOneGpu& operator=(const RanksOfOneGpu&) = delete;
  ~RanksOfOneGpu() {
    for (const DriverStream& stream : streams_) COX_CUDA_CHECK(stream_synchronize(stream.get()));
  }

  [[nodiscard]] std::size_t size() const noexcept { return streams_.size(); }
  [[nodiscard]] const CudaClient& client() noexcept { return gpu_.client(); }
  [[nodiscard]] Buffer buffer(ElementType type, const Values& values) { return {client(), bytes_of(type, values)}; }

  void prepare(const CollectiveRequest& request) {
    kernels_.prepare(request, [] { return std::shared_ptr<void>(); });
    REQUIRE(kernels_.usable(request));
  }
  /// Waits until what was written is there.
  void wait_for_data() { client().sync().get(); }
  /// Issues the rank's part.
  void launch(std::size_t rank, const NcclCalls& calls) {
    const CollectiveAlgorithm algorithm = algorithm_of(calls);
    std::uint32_t& launched = launched_[rank][algorithm == CollectiveAlgorithm::PeerLines ? 0 : 1];
    const PeerKernels::Count count{counters_.address() + 4 * rank, ++counted_};
    kernels_of_last_part_ = 0;
    kernels_.launch(algorithm, rank, calls, launched, count, [&](const KernelLaunch& kernel) {
      ++kernels_of_last_part_;
      launch_on(streams_[rank].get(), kernel);
    });
  }
  void launch(const Parts& parts) {
    for (std::size_t rank = 0; rank < size(); ++rank) launch(rank, parts[rank]);
  }
  /// All that was launched has ended; false: it does not, and was given up.
  [[nodiscard]] bool wait() {
    bool ended = true;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (const DriverStream& stream : streams_) {
      DriverEvent event;
      COX_CUDA_TRY(event_create(event.out(), CU_EVENT_DISABLE_TIMING));
      COX_CUDA_TRY(event_record(event.get(), stream.get()));
      while (driver().event_query(event.get()) == CUDA_ERROR_NOT_READY && ended) {
        std::this_thread::yield();
        ended = std::chrono::steady_clock::now() < deadline;
      }
      if (!ended) kernels_.abort();
      COX_CUDA_TRY(stream_synchronize(stream.get()));
    }
    return ended;
  }
  [[nodiscard]] bool run(const Parts& parts) {
    launch(parts);
    return wait();
  }
  /// The word that the rank's last kernel has set.
  [[nodiscard]] std::uint32_t counter(std::size_t rank) { return numbers(client().read_one(counters_.handle()))[rank]; }
  [[nodiscard]] std::uint32_t counted() const noexcept { return counted_; }
  [[nodiscard]] std::size_t kernels_of_last_part() const noexcept { return kernels_of_last_part_; }
  [[nodiscard]] const PeerKernelLimits& limits() const noexcept { return limits_; }
  void abort() { kernels_.abort(); }

  bool is_reproducible = false;  ///< Communicator::is_reproducible()

 private:
  /// The blocks of all ranks are on the GPU at a time.
  static PeerKernelLimits limits_of(std::size_t ranks, int multiprocessors) {
    PeerKernelLimits limits = peer_kernel_limits(ranks);
    limits.thread_blocks =
        std::clamp(static_cast<unsigned>(multiprocessors) / static_cast<unsigned>(ranks), 1U, limits.thread_blocks);
    return limits;
  }
  [[nodiscard]] CollectiveAlgorithm algorithm_of(const NcclCalls& calls) const {
    CollectiveRequests requests;
    for (const NcclCall& call : calls) requests.push_back(call.request);
    const CollectiveAlgorithm algorithm = PeerKernels::algorithm_of(requests, size(), is_reproducible, limits_);
    REQUIRE(algorithm != CollectiveAlgorithm::Nccl);
    return algorithm;
  }

  OpenCuda gpu_;
  const PeerKernelLimits limits_;
  std::vector<std::shared_ptr<CudaContext>> contexts_;
  CurrentContext current_;
  PeerKernels kernels_;
  std::vector<std::array<std::uint32_t, 2>> launched_;  // by rank, of each way
  Buffer counters_;
  std::uint32_t counted_ = 0;
  std::size_t kernels_of_last_part_ = 0;
  std::vector<DriverStream> streams_;
};

CollectiveRequest reduction_of(ElementType type, std::size_t count, ReduceOperation operation = ReduceOperation::Sum) {
  return {.element_type = type, .count = count, .reduce_operation = operation};
}

RanksOfOneGpu::Parts in_place(const std::vector<Buffer>& data, const CollectiveRequest& request) {
  RanksOfOneGpu::Parts parts;
  for (const Buffer& each : data) parts.push_back({NcclCall{request, each.at(0), each.at(0)}});
  return parts;
}

/// Finite values of very different sizes, so that the order of additions shows.
std::vector<std::byte> random_floats(ElementType type, std::size_t count, std::size_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  std::vector<std::byte> bytes(count * element_size(type));
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = static_cast<std::uint32_t>(random());
    if (type == ElementType::F64) {
      const std::uint64_t value = (std::uint64_t{word & 0x800fffffU} | (1000U + (word >> 20U) % 50U) << 20U) << 32U |
                                  static_cast<std::uint32_t>(random());
      std::memcpy(bytes.data() + 8 * i, &value, 8);
    } else if (type == ElementType::F32) {
      const std::uint32_t value = (word & 0x807fffffU) | (100U + (word >> 23U) % 40U) << 23U;
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      const bool is_half = type == ElementType::F16;
      const std::uint32_t exponent = is_half ? (5U + (word >> 16U) % 15U) << 10U : (100U + (word >> 16U) % 40U) << 7U;
      const auto value = static_cast<std::uint16_t>((word & (is_half ? 0x83ffU : 0x807fU)) | exponent);
      std::memcpy(bytes.data() + 2 * i, &value, 2);
    }
  }
  return bytes;
}

/// Reduces what `values(rank)` has to `expected`, in place and elsewhere.
template <class Of>
void check_reduction(RanksOfOneGpu& gpu, const CollectiveRequest& request, const Of& values, const Values& expected) {
  INFO(to_string(request) << " on " << gpu.size() << " ranks");
  const ElementType type = request.element_type;
  gpu.prepare(request);
  std::vector<Buffer> sources;
  std::vector<Buffer> results;
  for (std::size_t rank = 0; rank < gpu.size(); ++rank) {
    sources.push_back(gpu.buffer(type, values(rank)));
    results.push_back(gpu.buffer(type, Values(request.count)));
  }
  RanksOfOneGpu::Parts parts;
  for (std::size_t rank = 0; rank < gpu.size(); ++rank)
    parts.push_back({NcclCall{request, sources[rank].at(0), results[rank].at(0)}});
  gpu.wait_for_data();
  REQUIRE(gpu.run(parts));
  for (const Buffer& result : results) REQUIRE(equal(gpu.client(), result.handle(), bytes_of(type, expected)));
  REQUIRE(gpu.run(in_place(sources, request)));
  for (const Buffer& source : sources) REQUIRE(equal(gpu.client(), source.handle(), bytes_of(type, expected)));
  for (std::size_t rank = 0; rank < gpu.size(); ++rank)
    REQUIRE(gpu.counter(rank) == gpu.counted() - gpu.size() + rank + 1);
}

}  // namespace

TEST_CASE("Kernels of two to eight ranks reduce every type right, on one GPU", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  for (const std::size_t ranks : {2U, 3U, 4U, 8U}) {
    RanksOfOneGpu gpu(ranks);
    for (const auto& facts : element_types) {
      if (!has_peer_kernels(facts.type)) continue;
      if (ranks != 4 && facts.type != ElementType::F32 && facts.type != ElementType::BF16) continue;
      for (const ReduceOperation operation :
           {ReduceOperation::Sum, ReduceOperation::Min, ReduceOperation::Max, ReduceOperation::Product}) {
        const bool is_thorough = ranks == 4 && (facts.type == ElementType::I8 || facts.type == ElementType::U64 ||
                                                facts.type == ElementType::BF16 || facts.type == ElementType::F32);
        if (!is_thorough && operation != ReduceOperation::Sum) continue;  // to compile them is what takes long
        for (const std::size_t count : {1U, 13U, 4'097U, 60'001U, 500'003U})
          check_reduction(
              gpu, reduction_of(facts.type, count, operation), [&](std::size_t rank) { return values_of(rank, count); },
              reduced(operation, ranks, count));
      }
    }
  }
}

TEST_CASE("Kernels of several ranks take the mean of every type, on one GPU", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  constexpr std::size_t ranks = 3;
  RanksOfOneGpu gpu(ranks);
  for (const auto& facts : element_types) {
    if (!has_peer_kernels(facts.type)) continue;
    for (const std::size_t count : {7U, 30'001U}) {
      const auto multiples = [&](std::size_t rank) {
        Values values = values_of(rank, count);
        for (unsigned& value : values) value *= static_cast<unsigned>(ranks);
        return values;
      };
      check_reduction(gpu, reduction_of(facts.type, count, ReduceOperation::Mean), multiples,
                      reduced(ReduceOperation::Sum, ranks, count));
    }
  }
}

TEST_CASE("Kernels of several ranks gather, scatter and broadcast in place, wherever that is, on one GPU", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  constexpr ElementType type = ElementType::U8;
  for (const std::size_t ranks : {2U, 3U, 8U}) {
    RanksOfOneGpu gpu(ranks);
    for (const std::size_t block : {1U, 32U, 1'001U, 70'001U})
      for (const std::size_t first : {0U, 5U, 16U}) {
        INFO(block << " from " << first << " on " << ranks << " ranks");
        const BlocksInPlace blocks{.ranks = ranks, .first = first, .block = block};
        std::vector<CollectiveRequest> requests;
        for (const auto operation :
             {CollectiveOperation::AllGather, CollectiveOperation::ReduceScatter, CollectiveOperation::Broadcast})
          requests.push_back({.operation = operation,
                              .element_type = type,
                              .count = operation == CollectiveOperation::Broadcast ? block * ranks : block,
                              .root = ranks - 1});
        for (const CollectiveRequest& request : requests) {
          INFO(to_string(request));
          gpu.prepare(request);
          std::vector<Buffer> data;
          RanksOfOneGpu::Parts parts;
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            data.push_back(gpu.buffer(type, values_of(rank, blocks.count())));
            std::byte* const all = data[rank].at(first);
            std::byte* const own = all + rank * block;
            parts.push_back({NcclCall{request, request.operation == CollectiveOperation::AllGather ? own : all,
                                      request.operation == CollectiveOperation::ReduceScatter ? own : all}});
          }
          gpu.wait_for_data();
          REQUIRE(gpu.run(parts));
          for (std::size_t rank = 0; rank < ranks; ++rank)
            REQUIRE(equal(gpu.client(), data[rank].handle(), bytes_of(type, blocks.after(request.operation, rank))));
        }
      }
  }
}

TEST_CASE("A kernel of several ranks reduces a group of tensors of any sizes, on one GPU", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  std::vector<std::size_t> any;
  std::vector<std::size_t> whole;  // whole units
  for (std::size_t i = 0; i < 100; ++i) any.push_back(1 + i * i * 7 % 1'003);
  for (std::size_t i = 0; i < 100; ++i) whole.push_back(16 * (1 + i * i * 7 % 503));
  const std::vector<std::size_t> alike(64, 4'096);
  const std::vector<std::size_t> skewed{16, 32, 400'000, 16, 48, 16};
  for (const std::size_t ranks : {2U, 4U})
    for (const ElementType type : {ElementType::F32, ElementType::U8}) {
      RanksOfOneGpu gpu(ranks);
      gpu.prepare(reduction_of(type, 1));
      for (const std::vector<std::size_t>& counts : {any, whole, alike, skewed}) {
        INFO(ranks << " ranks, " << to_string(type) << ", " << counts[1] << " elements");
        std::vector<std::vector<Buffer>> data(gpu.size());
        RanksOfOneGpu::Parts parts(gpu.size());
        for (std::size_t rank = 0; rank < gpu.size(); ++rank)
          for (const std::size_t count : counts) {
            data[rank].push_back(gpu.buffer(type, values_of(rank, count)));
            parts[rank].push_back(
                NcclCall{reduction_of(type, count), data[rank].back().at(0), data[rank].back().at(0)});
          }
        gpu.wait_for_data();
        REQUIRE(gpu.run(parts));
        for (std::size_t rank = 0; rank < gpu.size(); ++rank)
          for (std::size_t i = 0; i < counts.size(); ++i)
            REQUIRE(equal(gpu.client(), data[rank][i].handle(),
                          bytes_of(type, reduced(ReduceOperation::Sum, gpu.size(), counts[i]))));
      }
    }
}

TEST_CASE("Sums of several ranks have the bits of host devices, whatever the size and the group, on one GPU", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  const std::vector<std::vector<std::size_t>> groups{
      {13}, {20'000}, {3'000'001}, {1, 700'000, 5, 2'000'000, 300, 40'000}};
  const std::vector<std::pair<ElementType, ReduceOperation>> reductions{
      {ElementType::F32, ReduceOperation::Sum},  {ElementType::BF16, ReduceOperation::Sum},
      {ElementType::F16, ReduceOperation::Sum},  {ElementType::F64, ReduceOperation::Sum},
      {ElementType::F32, ReduceOperation::Mean}, {ElementType::BF16, ReduceOperation::Mean}};
  for (const std::size_t ranks : {2U, 3U, 5U, 8U})
    for (const auto& [type, operation] : reductions) {
      if (ranks == 5 && type != ElementType::F32) continue;  // to compile them is what takes long
      RanksOfOneGpu gpu(ranks);
      gpu.is_reproducible = true;
      gpu.prepare(reduction_of(type, 1, operation));
      for (const std::vector<std::size_t>& counts : groups) {
        RanksOfOneGpu::Parts parts(ranks);
        std::vector<std::vector<Buffer>> data(ranks);
        std::vector<std::vector<std::byte>> expected;
        std::size_t all_bytes = 0;
        for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
          const std::size_t bytes = counts[tensor] * element_size(type);
          all_bytes += bytes;
          std::vector<std::vector<std::byte>> values;
          std::vector<const std::byte*> inputs;
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            values.push_back(random_floats(type, counts[tensor], 100 * tensor + rank));
            data[rank].emplace_back(gpu.client(), Bytes::copy_of(values.back()));
            parts[rank].push_back(NcclCall{reduction_of(type, counts[tensor], operation), data[rank].back().at(0),
                                           data[rank].back().at(0)});
          }
          for (const auto& each : values) inputs.push_back(each.data());
          expected.emplace_back(bytes);
          detail::reduce(type, operation, inputs, counts[tensor], expected.back().data());
        }
        INFO(ranks << " ranks, " << to_string(type) << ", " << to_string(operation) << ", " << counts.front()
                   << " elements");
        gpu.wait_for_data();
        REQUIRE(gpu.run(parts));
        CHECK((gpu.kernels_of_last_part() > 1) == (all_bytes > gpu.limits().all_reduce));
        for (std::size_t rank = 0; rank < ranks; ++rank)
          for (std::size_t tensor = 0; tensor < counts.size(); ++tensor)
            REQUIRE(equal(gpu.client(), data[rank][tensor].handle(), Bytes::copy_of(expected[tensor])));
      }
    }
}

TEST_CASE("Kernels of several ranks come right one behind the other, whatever their sizes, on one GPU", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  constexpr std::size_t all = 100'000;
  for (const std::size_t ranks : {2U, 3U, 5U, 8U}) {
    RanksOfOneGpu gpu(ranks);
    gpu.prepare(reduction_of(ElementType::U32, 1));
    Values expected(all);
    std::vector<Buffer> data;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Values values = values_of(rank, all);
      for (std::size_t i = 0; i < all; ++i) expected[i] += values[i];
      data.push_back(gpu.buffer(ElementType::U32, values));
    }
    gpu.wait_for_data();
    gpu.launch(in_place(data, reduction_of(ElementType::U32, all)));
    for (std::size_t i = 0; i < 300; ++i) {
      const std::size_t count = 1 + i * 7919 % (i % 3 == 0 ? 100 : i % 3 == 1 ? 16'000 : all);
      for (std::size_t element = 0; element < count; ++element) expected[element] *= static_cast<unsigned>(ranks);
      gpu.launch(in_place(data, reduction_of(ElementType::U32, count)));
    }
    REQUIRE(gpu.wait());
    for (const Buffer& each : data) REQUIRE(equal(gpu.client(), each.handle(), bytes_of(ElementType::U32, expected)));
  }
}

// What a kernel reads is written again two kernels later.
TEST_CASE("Kernels of all kinds and sizes come right one behind the other, on one GPU", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  constexpr ElementType type = ElementType::U32;
  constexpr std::size_t most = 30'000;
  constexpr std::size_t operations = 400;
  std::mt19937 random(11);
  for (const std::size_t ranks : {2U, 3U, 8U}) {
    RanksOfOneGpu gpu(ranks);
    gpu.prepare(reduction_of(type, 1));
    gpu.prepare({.operation = CollectiveOperation::AllGather, .element_type = type, .count = 1});
    std::vector<Values> values;
    std::vector<Buffer> sources;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      values.push_back(values_of(rank, most * ranks));
      sources.push_back(gpu.buffer(type, values.back()));
    }
    const auto sum_at = [&](std::size_t element) {
      unsigned sum = 0;
      for (const Values& each : values) sum += each[element];
      return sum;
    };
    struct Run {
      std::vector<CollectiveRequest> requests;
      std::size_t begin;  // of the result
    };
    std::vector<Run> runs;
    std::vector<Values> expected(ranks);
    for (std::size_t i = 0; i < operations; ++i) {
      const std::size_t limit = std::array<std::size_t, 3>{20, 3'000, most}[random() % 3];
      constexpr std::array kinds{CollectiveOperation::AllReduce, CollectiveOperation::Reduce,
                                 CollectiveOperation::AllGather, CollectiveOperation::ReduceScatter,
                                 CollectiveOperation::Broadcast};
      CollectiveRequest request{.operation = kinds[random() % kinds.size()], .element_type = type};
      request.count = 1 + random() % limit;
      if (facts_of(request.operation).rooted) request.root = random() % ranks;
      Run run{{request}, expected.front().size()};
      if (request.operation == CollectiveOperation::AllReduce && random() % 2 == 0) run.requests.resize(3, request);
      for (std::size_t rank = 0; rank < ranks; ++rank)
        for (const CollectiveRequest& each : run.requests) switch (each.operation) {
            case CollectiveOperation::AllReduce:
              for (std::size_t e = 0; e < each.count; ++e) expected[rank].push_back(sum_at(e));
              break;
            case CollectiveOperation::Reduce:
              for (std::size_t e = 0; e < each.count; ++e) expected[rank].push_back(rank == each.root ? sum_at(e) : 0);
              break;
            case CollectiveOperation::ReduceScatter:
              for (std::size_t e = 0; e < each.count; ++e) expected[rank].push_back(sum_at(rank * each.count + e));
              break;
            case CollectiveOperation::AllGather:
              for (const Values& of : values)
                expected[rank].insert(expected[rank].end(), of.begin(),
                                      of.begin() + static_cast<std::ptrdiff_t>(each.count));
              break;
            default:
              expected[rank].insert(expected[rank].end(), values[each.root].begin(),
                                    values[each.root].begin() + static_cast<std::ptrdiff_t>(each.count));
          }
      runs.push_back(std::move(run));
    }
    std::vector<Buffer> results;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      results.push_back(gpu.buffer(type, Values(expected.front().size())));
    gpu.wait_for_data();
    // Ranks are ahead of each other.
    std::vector<std::size_t> next(ranks);
    while (*std::ranges::min_element(next) < runs.size()) {
      const std::size_t rank = random() % ranks;
      const std::size_t end =
          std::min({next[rank] + 1 + random() % 20, runs.size(), *std::ranges::min_element(next) + 40});
      for (; next[rank] < end; ++next[rank]) {
        NcclCalls calls;
        std::size_t begin = runs[next[rank]].begin;
        for (const CollectiveRequest& each : runs[next[rank]].requests) {
          calls.push_back({each, sources[rank].at(0), results[rank].at(begin * sizeof(std::uint32_t))});
          begin += each.count;
        }
        gpu.launch(rank, calls);
      }
    }
    REQUIRE(gpu.wait());
    for (std::size_t rank = 0; rank < ranks; ++rank)
      REQUIRE(equal(gpu.client(), results[rank].handle(), bytes_of(type, expected[rank])));
  }
}

TEST_CASE("A kernel whose other ranks do not come ends when it is given up, on one GPU", "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  for (const std::size_t count : {10U, 60'000U}) {
    RanksOfOneGpu gpu(2);
    const CollectiveRequest request = reduction_of(ElementType::F32, count);
    gpu.prepare(request);
    std::vector<Buffer> data;
    for (std::size_t rank = 0; rank < 2; ++rank) data.push_back(gpu.buffer(ElementType::F32, values_of(rank, count)));
    const RanksOfOneGpu::Parts parts = in_place(data, request);
    gpu.wait_for_data();
    gpu.launch(0, parts[0]);
    gpu.abort();
    CHECK(gpu.wait());
  }
}

TEST_CASE("What was compiled with the library has the kernels, the parameters and the memory that NVRTC gives them",
          "[gpu]") {
  COX_REQUIRE_GPUS(1U);
  const OpenCuda gpu;
  const EmbeddedKernels& embedded = EmbeddedKernels::of_peers();
  const auto context = CudaContext::open(0);
  const ComputeCapability device{context->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                 context->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
  if (!embedded.run_on(device, driver().version)) {
    WARN("skipped: needs kernels that were compiled with the library, for this GPU");
    return;
  }
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  const auto loaded = [&](const CudaKernel& kernel) -> const LoadedKernel& {
    kernel.prepare(gpu.device());
    return kernel.require_loaded({gpu.device(), StreamId::current()}, std::source_location::current());
  };
  for (const PeerKernelCode& code : {PeerKernelCode{}, PeerKernelCode{true, ElementType::F32, ReduceOperation::Sum},
                                     PeerKernelCode{true, ElementType::BF16, ReduceOperation::Mean}}) {
    const std::string source = peer_kernels_source(code, 2);
    const auto image = embedded.find(source);
    REQUIRE_FALSE(image.empty());
    const std::vector<std::byte> compiled =
        compile(*nvrtc, {source, {}, {}, {}}, architecture_name(device.major, device.minor)).image;
    for (const PeerKernel kernel : peer_kernels_of(code, 2)) {
      const std::string name = peer_kernel_name(kernel, code);
      CAPTURE(name);
      const CudaKernel ours = CudaKernel::from_image(name, CubeDim::of_1d(peer_kernel_threads), image);
      const CudaKernel theirs = CudaKernel::from_image(name, CubeDim::of_1d(peer_kernel_threads), compiled);
      CHECK(loaded(ours).parameter_sizes == loaded(theirs).parameter_sizes);
      CHECK(loaded(ours).static_shared_memory == loaded(theirs).static_shared_memory);
      CHECK(loaded(ours).local_memory == 0);
      CHECK(loaded(theirs).local_memory == 0);
      CHECK(loaded(ours).max_threads_per_block >= peer_kernel_threads);
    }
  }
}
