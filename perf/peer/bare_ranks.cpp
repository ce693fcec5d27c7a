#include <coxswain/perf/peer/bare_ranks.hpp>

#include <coxswain/perf/cuda/raw_driver.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace cox::perf {
namespace {

using Microseconds = std::chrono::duration<double, std::micro>;
using detail::PeerKernels;

constexpr DeviceId gpu(std::size_t index) {
  return {.type = cuda_device_type, .index = static_cast<std::uint16_t>(index)};
}

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): an address of the device
}

}  // namespace

struct BareRanks::Rank {
  Rank(std::size_t index, std::size_t largest)
      : stream(static_cast<int>(index)),
        source(stream.context(), largest),
        destination(stream.context(), largest),
        counter(stream.context(), sizeof(std::uint32_t)),
        batch(detail::driver()) {}

  RawStream stream;
  RawDeviceMemory source;
  RawDeviceMemory destination;
  RawDeviceMemory counter;
  detail::LaunchBatch batch;
};

struct BareRanks::Kernels {
  Kernels(const std::vector<DeviceId>& devices, std::vector<std::shared_ptr<detail::CudaContext>> contexts,
          const detail::PeerKernelLimits& its_limits)
      : limits(its_limits), kernels(devices, std::move(contexts), its_limits), launched(devices.size()) {}

  const detail::PeerKernelLimits limits;
  PeerKernels kernels;
  std::vector<std::array<std::uint32_t, 3>> launched;  // by rank and CollectiveAlgorithm
};

BareRanks::BareRanks(std::size_t ranks, std::size_t largest) : team_(ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(rank, largest));
    const detail::CurrentContext current(ranks_.back()->stream.context());
    for (const RawDeviceMemory* memory : {&ranks_.back()->source, &ranks_.back()->destination})
      COX_CUDA_TRY(memory_set(memory->address(), 0, largest / sizeof(std::uint32_t)));
    COX_CUDA_TRY(stream_synchronize(nullptr));
  }
  team_([this](std::size_t rank) { ranks_[rank]->stream.activate(); });
}

BareRanks::~BareRanks() = default;

BareRanks::Kernels& BareRanks::add_kernels(const detail::PeerKernelLimits& limits) {
  std::vector<DeviceId> devices;
  std::vector<std::shared_ptr<detail::CudaContext>> contexts;
  for (const auto& rank : ranks_) {
    devices.push_back(gpu(devices.size()));
    contexts.push_back(rank->stream.shared_context());
  }
  return *kernels_.emplace_back(std::make_unique<Kernels>(devices, std::move(contexts), limits));
}

BareRanks::Kernels& BareRanks::kernels_for(const CollectiveRequest& request, const detail::PeerKernelLimits& limits) {
  const auto found = std::ranges::find_if(kernels_, [&](const auto& each) { return each->limits == limits; });
  Kernels& kernels = found == kernels_.end() ? add_kernels(limits) : **found;
  kernels.kernels.prepare(request, [] { return std::shared_ptr<void>(); });
  if (!kernels.kernels.usable(request)) throw std::runtime_error("the kernels cannot be loaded");
  return kernels;
}

void BareRanks::repeat(Kernels& kernels, const CollectiveRequests& requests, std::size_t count, bool wait) {
  const CollectiveAlgorithm algorithm = PeerKernels::algorithm_of(requests, ranks_.size(), false, kernels.limits);
  if (algorithm == CollectiveAlgorithm::Nccl) throw std::invalid_argument("the limits leave the operation to NCCL");
  team_([&](std::size_t index) {
    Rank& rank = *ranks_[index];
    const CUstream stream = rank.stream.native();
    std::uint32_t& launched = kernels.launched[index][static_cast<std::size_t>(algorithm)];
    const PeerKernels::Count counter{rank.counter.address(), 0};
    NcclCalls calls;
    std::size_t at = 0;
    for (const CollectiveRequest& request : requests) {
      calls.push_back({request, pointer(rank.source.address() + at), pointer(rank.destination.address() + at)});
      at += request.count * element_size(request.element_type);
    }
    const PeerKernels::Launch launch = [&](const detail::KernelLaunch& kernel) {
      if (rank.batch.size() == detail::LaunchBatch::max_kernels) rank.batch.flush(stream);
      rank.batch.add(kernel, [](const detail::LaunchBatch::Outcome& outcome) {
        detail::check_cuda(outcome.result, "cuLaunchKernelEx");
      });
    };
    for (std::size_t i = 0; i < count; ++i) {
      kernels.kernels.launch(algorithm, index, calls, launched, counter, launch);
      if (!wait) continue;
      rank.batch.flush(stream);
      rank.stream.synchronize();
    }
    rank.batch.flush(stream);
    rank.stream.synchronize();
  });
}

BareTimes BareRanks::time(const CollectiveRequests& requests, const detail::PeerKernelLimits& limits,
                          std::size_t count) {
  Kernels& kernels = kernels_for(requests.front(), limits);
  repeat(kernels, requests, std::max<std::size_t>(count / 10, 20), false);
  const auto timed = [&](std::size_t times, bool wait) {
    const auto begin = std::chrono::steady_clock::now();
    repeat(kernels, requests, times, wait);
    return Microseconds(std::chrono::steady_clock::now() - begin).count() / static_cast<double>(times);
  };
  const double in_stream = timed(count, false);
  return {in_stream, timed(std::max<std::size_t>(count / 10, 50), true)};
}

}  // namespace cox::perf
