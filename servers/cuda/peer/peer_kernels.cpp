#include <coxswain/servers/cuda/peer/peer_kernels.hpp>

#include <coxswain/collectives/nccl/nccl_types.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/kernel_cache.hpp>
#include <coxswain/servers/cuda/compile/loaded_kernel.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/nvrtc.hpp>
#include <coxswain/servers/cuda/memory/cuda_storage.hpp>
#include <coxswain/servers/cuda/peer/embedded_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace cox::detail {
namespace {

constexpr std::size_t most_ranks = PeerKernels::max_ranks;

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) noexcept { return (bytes + to - 1) / to * to; }
constexpr std::size_t units_in(std::size_t bytes) noexcept { return (bytes + flags_unit - 1) / flags_unit; }

constexpr std::size_t lines_of_rank = most_by_lines / line_unit * line_size;
constexpr std::size_t flags_size = std::size_t{2} * peer_kernel_blocks * most_ranks * sizeof(std::uint32_t);
// Size of the inputs of one epoch, and of the results. The data of each rank takes whole units there, so the last unit
// may extend past the data.
constexpr std::size_t data_size = rounded_up(most_before_flags + most_ranks * flags_unit, 256);

/// Layout of struct Whole in the kernels.
struct Whole {
  const void* in;
  void* out;
  std::uint64_t bytes;
};

/// Layout of struct Pieces in the kernels.
struct Pieces {
  std::uint32_t count = 0;
  std::uint32_t all_whole = 1;
  float density = 0;
  std::array<std::uint32_t, peer_kernel_pieces + 1> first{};
  std::array<std::uint32_t, peer_kernel_pieces> bytes{};
  std::array<const void*, peer_kernel_pieces> in{};
  std::array<void*, peer_kernel_pieces> out{};

  void add(const void* source, void* destination, std::size_t size) noexcept {
    first[count + 1] = first[count] + static_cast<std::uint32_t>(units_in(size));
    bytes[count] = static_cast<std::uint32_t>(size);
    in[count] = source;
    out[count] = destination;
    ++count;
    const std::uintptr_t places = std::bit_cast<std::uintptr_t>(source) | std::bit_cast<std::uintptr_t>(destination);
    if (((places | size) & (flags_unit - 1)) != 0) all_whole = 0;
  }
  /// Call after the last add().
  void set_density() noexcept {
    density = static_cast<float>(count) / static_cast<float>(std::max<std::uint32_t>(first[count], 1));
  }
};
static_assert(sizeof(Pieces) + 4 * sizeof(std::array<CUdeviceptr, most_ranks>) <= 4096, "of a kernel's arguments");

/// The number (epoch) of an algorithm's next kernel. When it wraps around, 0 is skipped, since memory that no kernel
/// has written yet contains 0. 1 is skipped as well, so that the memory of even and odd epochs keeps alternating.
std::uint32_t next_epoch(std::uint32_t& launched) noexcept {
  if (++launched == 0) launched = 2;
  return launched;
}

std::size_t size_of(const CollectiveRequest& request) noexcept {
  return request.count * element_size(request.element_type);
}

bool is_float(ElementType type) noexcept {
  switch (type) {
    case ElementType::F8E4M3:
    case ElementType::F8E5M2:
    case ElementType::F16:
    case ElementType::BF16:
    case ElementType::F32:
    case ElementType::F64: return true;
    default: return false;
  }
}

bool is_all_reduce(const CollectiveRequest& request) noexcept {
  return request.operation == CollectiveOperation::AllReduce;
}

/// Whether a single operation is one of small blocks: all_gather, reduce_scatter or broadcast.
bool is_of_small_blocks(const CollectiveRequest& request, std::size_t world_size, const PeerKernelLimits& limits) {
  const std::size_t bytes = size_of(request);
  if (bytes == 0) return false;
  switch (request.operation) {
    case CollectiveOperation::AllGather: return bytes <= limits.blocks / world_size;
    case CollectiveOperation::ReduceScatter:
      return has_peer_kernels(request.element_type) && bytes <= limits.blocks / world_size;
    case CollectiveOperation::Broadcast: return bytes <= limits.broadcast;
    default: return false;
  }
}

/// Whether a single operation is a reduce that is small enough for one shot.
bool is_small_reduce(const CollectiveRequest& request, const PeerKernelLimits& limits) noexcept {
  return request.operation == CollectiveOperation::Reduce && has_peer_kernels(request.element_type) &&
         request.count != 0 && size_of(request) <= limits.one_shot;
}

/// Whether a single operation, which is small, is done by lines.
bool is_by_lines(const CollectiveRequest& request, const PeerKernelLimits& limits) noexcept {
  const std::size_t bytes = size_of(request);
  switch (request.operation) {
    case CollectiveOperation::AllReduce:
    case CollectiveOperation::Reduce: return bytes <= limits.lines;
    case CollectiveOperation::AllGather:
    case CollectiveOperation::ReduceScatter: return bytes <= limits.block_lines;
    case CollectiveOperation::Broadcast: return bytes <= limits.broadcast_lines;
    default: return false;
  }
}

/// Requests that one kernel does: all_reduces of one type and operation, which are small together.
class SmallTogether {
 public:
  explicit SmallTogether(const PeerKernelLimits& limits) noexcept : most_(limits.all_reduce) {}

  /// Adds the next request. Returns false, and does not add it, if the kernel does not do it as well.
  bool add(const CollectiveRequest& request) noexcept {
    const std::size_t size = size_of(request);
    if (count_ == peer_kernel_pieces || !is_all_reduce(request) || size > most_) return false;
    const std::size_t bytes = bytes_ + units_in(size) * flags_unit;  // each begins at a whole unit
    if (bytes > most_) return false;
    if (count_ != 0 &&
        (request.element_type != first_.element_type || request.reduce_operation != first_.reduce_operation))
      return false;
    if (count_ == 0) first_ = {request.element_type, request.reduce_operation};
    ++count_;
    bytes_ = bytes;
    return true;
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool has_data() const noexcept { return bytes_ != 0; }

 private:
  struct Kind {
    ElementType element_type;
    ReduceOperation reduce_operation;
  };
  const std::size_t most_;
  Kind first_{};
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

/// Launches a kernel with these values as arguments, which have the types of the kernel's parameters.
template <class... Values>
void launch_kernel(const PeerKernels::Launch& launch, CUfunction function, unsigned blocks, const Values&... values) {
  std::array<std::uint64_t, (parameter_words(sizeof(values)) + ...)> words{};
  std::array<std::uint32_t, sizeof...(Values)> begins{};
  std::size_t word = 0;
  auto begin = begins.begin();
  const auto add = [&](const auto& value) {
    *begin++ = static_cast<std::uint32_t>(word);
    std::memcpy(&words[word], &value, sizeof(value));
    word += parameter_words(sizeof(value));
  };
  (add(values), ...);
  launch({.function = function,
          .grid = {blocks, 1, 1},
          .block = {peer_kernel_threads, 1, 1},
          .words = words,
          .parameter_begins = begins});
}

/// Whether this is the failure to load an image that the driver does not accept.
bool is_rejected(const std::exception_ptr& failure) {
  if (failure == nullptr) return false;
  try {
    std::rethrow_exception(failure);
  } catch (const LaunchError& error) {
    return error.kind() == LaunchError::Kind::Compilation;
  } catch (...) {
    return false;
  }
}

std::vector<PeerKernels::OwnRank> all_own(std::span<const DeviceId> devices,
                                          const std::vector<std::shared_ptr<CudaContext>>& contexts) {
  std::vector<PeerKernels::OwnRank> own;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) own.push_back({rank, devices[rank], contexts[rank]});
  return own;
}

std::vector<std::shared_ptr<PeerMemory>> memory_of(const std::vector<std::shared_ptr<CudaContext>>& contexts) {
  std::vector<std::shared_ptr<PeerMemory>> memory;
  for (const auto& context : contexts)
    memory.push_back(PeerMemory::create(context, PeerKernels::memory_size(contexts.size()), PeerMemory::Sharing::None));
  return memory;
}

}  // namespace

bool PeerKernels::is_needed(const CollectiveRequest& request, bool is_reproducible) noexcept {
  if (request.count == 0 || !facts_of(request.operation).reduces) return false;
  if (is_float(request.element_type)) return is_reproducible;
  if (!has_peer_kernels(request.element_type)) return false;
  return !nccl_type(request.element_type) || request.reduce_operation == ReduceOperation::Mean;
}

CollectiveAlgorithm PeerKernels::algorithm_of(const CollectiveRequests& requests, std::size_t world_size,
                                              bool is_reproducible) noexcept {
  return algorithm_of(requests, world_size, is_reproducible, peer_kernel_limits(world_size));
}

CollectiveAlgorithm PeerKernels::algorithm_of(const CollectiveRequests& requests, std::size_t world_size,
                                              bool is_reproducible, const PeerKernelLimits& limits) noexcept {
  if (world_size > max_ranks) return CollectiveAlgorithm::Nccl;
  const CollectiveRequest& first = requests.front();
  const bool is_single = requests.size() == 1;
  const CollectiveAlgorithm small =
      is_single && is_by_lines(first, limits) ? CollectiveAlgorithm::PeerLines : CollectiveAlgorithm::PeerFlags;
  if (is_single && (is_of_small_blocks(first, world_size, limits) || is_small_reduce(first, limits))) return small;
  const auto has_kernels = [](const CollectiveRequest& request) {
    return facts_of(request.operation).reduces && has_peer_kernels(request.element_type);
  };
  if (!std::ranges::all_of(requests, has_kernels)) return CollectiveAlgorithm::Nccl;
  SmallTogether together(limits);
  if (std::ranges::all_of(requests, [&](const CollectiveRequest& each) { return together.add(each); }))
    return together.has_data() ? small : CollectiveAlgorithm::Nccl;
  const bool needed =
      std::ranges::any_of(requests, [&](const CollectiveRequest& each) { return is_needed(each, is_reproducible); });
  return needed ? CollectiveAlgorithm::PeerFlags : CollectiveAlgorithm::Nccl;
}

PeerKernelCode PeerKernels::code_of(const CollectiveRequest& request) noexcept {
  if (!facts_of(request.operation).reduces) return {};
  return {.reduces = true, .type = request.element_type, .operation = request.reduce_operation};
}

std::shared_ptr<PeerKernels> PeerKernels::make(const CommunicationId& devices,
                                               const std::vector<std::shared_ptr<CudaContext>>& contexts) {
  return all_reach_each_other(contexts) ? std::make_shared<PeerKernels>(devices.devices(), contexts) : nullptr;
}

PeerKernels::Layout::Layout(std::size_t ranks) noexcept
    : lines_of_epoch(ranks * lines_of_rank),
      flags(2 * lines_of_epoch),
      inputs(rounded_up(flags + 2 * flags_size, 4096)),
      results(inputs + 2 * data_size),
      size(rounded_up(results + (ranks > 2 ? data_size : 0), CudaStorage::granule)) {}

PeerKernels::PeerKernels(std::span<const DeviceId> devices, std::vector<std::shared_ptr<CudaContext>> contexts)
    : PeerKernels(devices, std::move(contexts), peer_kernel_limits(devices.size())) {}

PeerKernels::PeerKernels(std::span<const DeviceId> devices, std::vector<std::shared_ptr<CudaContext>> contexts,
                         const PeerKernelLimits& limits)
    : PeerKernels(all_own(devices, contexts), memory_of(contexts), limits) {}

PeerKernels::PeerKernels(std::vector<OwnRank> own, std::vector<std::shared_ptr<PeerMemory>> memory,
                         const PeerKernelLimits& limits)
    : own_(std::move(own)), memory_(std::move(memory)), limits_(limits), layout_(world_size()) {
  if (!limits.fit(world_size())) throw std::invalid_argument("the limits exceed the memory of the kernels");
  place_.resize(world_size());
  for (std::size_t i = 0; i < own_.size(); ++i) place_[own_[i].rank] = i;
  const CurrentContext current(*own_.front().context);
  COX_CUDA_TRY(host_alloc(abort_flag_.out(), 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  ::new (abort_flag_.get()) std::atomic<std::uint32_t>(0);
}

PeerKernels::~PeerKernels() {
  const CurrentContext current(*own_.front().context);
  abort_flag_.reset();
}

void PeerKernels::prepare(const CollectiveRequest& request, const std::function<std::shared_ptr<void>()>& quiesce) {
  std::unique_lock lock(mutex_);
  // One compilation at a time. When one completes, all ranks that need its code return at once, before the next
  // compilation begins. A rank that had to wait for that one, too, would be missing in an operation that its peers have
  // begun.
  changed_.wait(lock, [&] { return prepared(request) || !preparing_; });
  if (prepared(request)) return;
  preparing_ = true;
  struct Done {
    PeerKernels& kernels;
    std::unique_lock<std::mutex>& lock;
    ~Done() {
      if (!lock.owns_lock()) lock.lock();
      kernels.preparing_ = false;
      kernels.changed_.notify_all();
    }
  } const done{*this, lock};
  lock.unlock();
  auto made = std::make_unique<Kernels>();
  const PeerKernelCode code = code_of(request);
  const std::string source = peer_kernels_source(code, world_size());
  std::exception_ptr failure;
  std::vector<Image> images = embedded_images(source);
  const bool is_embedded = !images.empty();
  if (is_embedded) failure = load(*made, code, images, quiesce);
  if (!is_embedded || is_rejected(failure)) {
    try {
      images = compile(source);
      failure = nullptr;
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure == nullptr) failure = load(*made, code, images, quiesce);
  }
  if (failure != nullptr)
    log::write(LogSubsystem::Collectives, LogLevel::Warn,
               [&] { return "no peer kernel for " + to_string(request) + ": " + cox::describe(failure); });
  made->failure = failure;
  lock.lock();
  kept_.push_back(std::move(made));
  kernels_[index_of(request)].store(kept_.back().get(), std::memory_order_release);
}

bool PeerKernels::are_embedded(const CollectiveRequest& request) const {
  return !embedded_images(peer_kernels_source(code_of(request), world_size())).empty();
}

std::vector<PeerKernels::Image> PeerKernels::embedded_images(const std::string& source) const {
  const EmbeddedKernels& embedded = EmbeddedKernels::of_peers();
  const std::span<const std::byte> image = embedded.find(source);
  if (image.empty()) return {};
  for (const OwnRank& own : own_)
    if (!embedded.run_on(capability_of(*own.context), driver().version)) return {};
  return std::vector<Image>(own_.size(), Image(image.begin(), image.end()));
}

std::vector<PeerKernels::Image> PeerKernels::compile(const std::string& source) const {
  const KernelSource to_compile{.text = source, .name_expression = {}, .headers = {}, .options = {}};
  std::map<std::string, Image> by_architecture;
  std::vector<Image> images;
  for (const OwnRank& own : own_) {
    const ComputeCapability device = capability_of(*own.context);
    const std::string architecture = architecture_name(device.major, device.minor);
    const auto [image, is_new] = by_architecture.try_emplace(architecture);
    if (is_new)
      image->second = compile_cached(nvrtc(), to_compile, architecture, key_of(nvrtc(), to_compile, architecture),
                                     KernelCache::of_process())
                          .image;
    images.push_back(image->second);
  }
  return images;
}

std::exception_ptr PeerKernels::load(Kernels& into, const PeerKernelCode& code, const std::vector<Image>& images,
                                     const std::function<std::shared_ptr<void>()>& quiesce) const {
  const std::shared_ptr<void> held = quiesce();
  try {
    into = {};
    for (std::size_t i = 0; i < own_.size(); ++i) load(into, code, images[i], own_[i].device);
    into.usable = true;
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void PeerKernels::load(Kernels& into, const PeerKernelCode& code, const Image& image, DeviceId device) const {
  for (const PeerKernel kernel : peer_kernels_of(code, world_size())) {
    into.kept.push_back(
        CudaKernel::from_image(peer_kernel_name(kernel, code), CubeDim::of_1d(peer_kernel_threads), image));
    into.kept.back().prepare(device);
    into.functions[static_cast<std::size_t>(kernel)].push_back(
        into.kept.back().require_loaded({device, StreamId::current()}, std::source_location::current()).function);
  }
}

struct PeerKernels::Part {
  const PeerKernels& of;
  std::size_t rank;
  std::uint32_t& launched;
  const Count& count;
  const Launch& launch;

  /// One small operation, by lines.
  void by_lines(const NcclCall& call) const;
  /// all_gather, reduce_scatter or broadcast, by flags.
  void blocks(const NcclCall& call) const;
  /// An all_reduce, or a reduce, of any size. The data is split into pieces that fit into the peer memory.
  void whole(const NcclCall& call) const;
  /// An all_reduce of `data`, the first argument of both kernels, which has so many units.
  template <class Data>
  void reduce(PeerKernel one_shot, PeerKernel two_shots, const CollectiveRequest& request, const Data& data,
              std::size_t units) const;

 private:
  /// What follows an operation's own arguments.
  struct Epoch {
    std::uint32_t number;
    Peers flags;
    Peers inputs;
  };
  [[nodiscard]] CUfunction function(PeerKernel kernel, const CollectiveRequest& request) const {
    return of.find(request)->functions[static_cast<std::size_t>(kernel)][of.place_[rank]];
  }
  [[nodiscard]] Epoch next() const noexcept {
    const std::uint32_t number = next_epoch(launched);
    return {number, of.all_at(of.layout_.flags + number % 2 * flags_size),
            of.all_at(of.layout_.inputs + number % 2 * data_size)};
  }
  [[nodiscard]] std::uint32_t own() const noexcept { return static_cast<std::uint32_t>(rank); }
  /// Whether the rank gets a result.
  [[nodiscard]] bool gets(const CollectiveRequest& request) const noexcept {
    return request.operation != CollectiveOperation::Reduce || request.root == rank;
  }
  [[nodiscard]] const void* given_up() const noexcept { return of.abort_flag_.get(); }
};

unsigned PeerKernels::blocks_for(std::size_t units) const noexcept {
  return static_cast<unsigned>(
      std::clamp<std::size_t>((units + peer_kernel_threads - 1) / peer_kernel_threads, 1, limits_.thread_blocks));
}

void PeerKernels::launch(CollectiveAlgorithm algorithm, std::size_t rank, const NcclCalls& calls,
                         std::uint32_t& launched, const Count& count, const Launch& launch) const {
  const Part part{*this, rank, launched, count, launch};
  const NcclCall& first = calls.front();
  if (algorithm == CollectiveAlgorithm::PeerLines) return part.by_lines(first);
  if (calls.size() == 1 && is_of_small_blocks(first.request, world_size(), limits_)) return part.blocks(first);
  for (std::size_t at = 0; at < calls.size();) {
    SmallTogether together(limits_);
    while (at + together.count() < calls.size() && together.add(calls[at + together.count()].request)) {
    }
    if (together.count() > 1) {
      const std::size_t end = at + together.count();
      const CollectiveRequest& request = calls[at].request;
      Pieces data;
      for (; at < end; ++at) data.add(calls[at].source, calls[at].destination, size_of(calls[at].request));
      data.set_density();
      if (together.has_data())
        part.reduce(PeerKernel::OneShotGroup, PeerKernel::TwoShotGroup, request, data, data.first[data.count]);
      continue;
    }
    const NcclCall& call = calls[at++];
    if (call.request.operation == CollectiveOperation::ReduceScatter) {
      NcclCall block = call;
      block.request.operation = CollectiveOperation::Reduce;
      for (block.request.root = 0; block.request.root < world_size(); ++block.request.root) {
        part.whole(block);
        block.source = static_cast<const std::byte*>(block.source) + size_of(call.request);
      }
    } else {
      part.whole(call);
    }
  }
}

void PeerKernels::Part::by_lines(const NcclCall& call) const {
  const CollectiveRequest& request = call.request;
  const std::uint64_t bytes = size_of(request);
  const std::uint32_t epoch = next_epoch(launched);
  const Peers lines = of.all_at(epoch % 2 * of.layout_.lines_of_epoch);
  const unsigned blocks = of.blocks_for((bytes + line_unit - 1) / line_unit);
  const void* const destination = gets(request) ? call.destination : nullptr;
  const auto launch_it = [&](PeerKernel kernel, const auto&... root) {
    launch_kernel(launch, function(kernel, request), blocks, call.source, destination, bytes, lines,
                  std::uint64_t{lines_of_rank}, own(), root..., epoch, given_up(), count);
  };
  switch (request.operation) {
    case CollectiveOperation::Broadcast:
      return launch_it(PeerKernel::BroadcastLines, static_cast<std::uint32_t>(request.root));
    case CollectiveOperation::AllGather: return launch_it(PeerKernel::AllGatherLines);
    case CollectiveOperation::ReduceScatter: return launch_it(PeerKernel::ReduceScatterLines);
    default: return launch_it(PeerKernel::OneShotLines);
  }
}

void PeerKernels::Part::blocks(const NcclCall& call) const {
  const CollectiveRequest& request = call.request;
  const std::uint64_t bytes = size_of(request);
  const Epoch epoch = next();
  const auto launch_it = [&](PeerKernel kernel, const auto&... root) {
    launch_kernel(launch, function(kernel, request), of.blocks_for(units_in(bytes)), call.source, call.destination,
                  bytes, epoch.flags, epoch.inputs, own(), root..., epoch.number, given_up(), count);
  };
  switch (request.operation) {
    case CollectiveOperation::Broadcast:
      return launch_it(PeerKernel::Broadcast, static_cast<std::uint32_t>(request.root));
    case CollectiveOperation::AllGather: return launch_it(PeerKernel::AllGather);
    default: return launch_it(PeerKernel::ReduceScatter);
  }
}

template <class Data>
void PeerKernels::Part::reduce(PeerKernel one_shot, PeerKernel two_shots, const CollectiveRequest& request,
                               const Data& data, std::size_t units) const {
  const Epoch epoch = next();
  const std::size_t ranks = of.world_size();
  if (ranks <= 2 || units * flags_unit <= of.limits_.one_shot)
    return launch_kernel(launch, function(one_shot, request), of.blocks_for(units), data, epoch.flags, epoch.inputs,
                         own(), epoch.number, given_up(), count);
  launch_kernel(launch, function(two_shots, request), of.blocks_for((units + ranks - 1) / ranks), data, epoch.flags,
                epoch.inputs, of.all_at(of.layout_.results), own(), epoch.number, given_up(), count);
}

void PeerKernels::Part::whole(const NcclCall& call) const {
  const CollectiveRequest& request = call.request;
  const auto* const source = static_cast<const std::byte*>(call.source);
  auto* const destination = gets(request) ? static_cast<std::byte*>(call.destination) : nullptr;
  const std::size_t size = size_of(request);
  for (std::size_t at = 0; at < size; at += most_before_flags) {
    const Whole data{source + at, destination != nullptr ? destination + at : nullptr,
                     std::min(size - at, most_before_flags)};
    reduce(PeerKernel::OneShot, PeerKernel::TwoShot, request, data, units_in(data.bytes));
  }
}

PeerKernels::Peers PeerKernels::all_at(std::size_t offset) const noexcept {
  Peers peers{};
  for (std::size_t r = 0; r < world_size(); ++r) peers[r] = memory_[r]->base() + offset;
  return peers;
}

void PeerKernels::abort() noexcept { static_cast<std::atomic<std::uint32_t>*>(abort_flag_.get())->store(1); }

}  // namespace cox::detail
