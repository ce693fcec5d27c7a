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
#include <coxswain/servers/cuda/peer/embedded_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace cox::detail {
namespace {

constexpr std::size_t most_ranks = PeerKernels::max_ranks;

// Layout of a rank's memory: lines of even and odd epochs, flags of two barriers, inputs, results.
constexpr std::size_t lines_of_rank = PeerKernels::max_one_shot_bytes / one_shot_unit * one_shot_line;
constexpr std::size_t lines_of_epoch = most_ranks * lines_of_rank;
constexpr std::size_t flags_at = 2 * lines_of_epoch;
constexpr std::size_t flags_size = std::size_t{2} * peer_kernel_blocks * most_ranks * sizeof(std::uint32_t);
constexpr std::size_t inputs_at = (flags_at + flags_size + 4095) / 4096 * 4096;
// Shares consist of whole units: the last one may extend past the data.
constexpr std::size_t results_at = inputs_at + PeerKernels::max_two_shots_bytes + most_ranks * two_shot_unit;
constexpr std::size_t results_size = PeerKernels::max_two_shots_bytes + most_ranks * two_shot_unit;
constexpr std::size_t granule = CudaStorage::granule;
constexpr std::size_t memory_size = (results_at + results_size + granule - 1) / granule * granule;

constexpr std::size_t two_shot_units(std::size_t bytes) noexcept { return (bytes + two_shot_unit - 1) / two_shot_unit; }

/// Layout of struct Whole in the kernels.
struct Whole {
  const void* in;
  void* out;
  std::uint64_t bytes;
};

/// Layout of struct Pieces in the kernels.
struct Pieces {
  std::uint32_t count = 0;
  std::array<std::uint32_t, peer_kernel_pieces + 1> first{};
  std::array<std::uint32_t, peer_kernel_pieces> bytes{};
  std::array<const void*, peer_kernel_pieces> in{};
  std::array<void*, peer_kernel_pieces> out{};

  void add(const void* source, void* destination, std::size_t size) noexcept {
    first[count + 1] = first[count] + static_cast<std::uint32_t>(two_shot_units(size));
    bytes[count] = static_cast<std::uint32_t>(size);
    in[count] = source;
    out[count] = destination;
    ++count;
  }
};
static_assert(sizeof(Pieces) + 4 * sizeof(std::array<CUdeviceptr, most_ranks>) <= 4096, "of a kernel's arguments");

/// The number (epoch) of an algorithm's next kernel. When it wraps around, 0 is skipped, since memory that no kernel
/// has written yet contains 0. 1 is skipped as well, so that the lines of even and odd epochs keep alternating.
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

unsigned blocks_for(std::size_t units) noexcept {
  return static_cast<unsigned>(
      std::clamp<std::size_t>((units + peer_kernel_threads - 1) / peer_kernel_threads, 1, peer_kernel_blocks));
}

bool is_all_reduce(const CollectiveRequest& request) noexcept {
  return request.operation == CollectiveOperation::AllReduce;
}

/// Whether a single operation is one of small blocks: all_gather, reduce_scatter or broadcast.
bool is_of_small_blocks(const CollectiveRequest& request, std::size_t world_size) noexcept {
  const std::size_t bytes = size_of(request);
  if (bytes == 0) return false;
  switch (request.operation) {
    case CollectiveOperation::AllGather: return bytes <= PeerKernels::max_two_shots_bytes / world_size;
    case CollectiveOperation::ReduceScatter:
      return has_peer_kernels(request.element_type) && bytes <= PeerKernels::max_two_shots_bytes / world_size;
    case CollectiveOperation::Broadcast: return bytes <= PeerKernels::max_broadcast_bytes;
    default: return false;
  }
}

/// Requests that one two-shot kernel does: all_reduces of one type and operation, which are small together.
class SmallTogether {
 public:
  /// Adds the next request. Returns false, and does not add it, if the kernel does not do it as well.
  bool add(const CollectiveRequest& request) noexcept {
    const std::size_t size = size_of(request);
    if (count_ == peer_kernel_pieces || !is_all_reduce(request) || size > PeerKernels::max_two_shots_bytes)
      return false;
    const std::size_t bytes = bytes_ + two_shot_units(size) * two_shot_unit;  // each begins at a whole unit
    if (bytes > PeerKernels::max_two_shots_bytes) return false;
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

ComputeCapability capability_of(const CudaContext& context) {
  return {context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
          context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
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

bool all_reach_each_other(const std::vector<std::shared_ptr<CudaContext>>& contexts) {
  for (const auto& from : contexts)
    for (const auto& to : contexts) {
      int reaches = 1;
      if (from != to) COX_CUDA_TRY(device_can_access_peer(&reaches, from->device(), to->device()));
      if (reaches == 0) return false;
    }
  return true;
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
  if (world_size > max_ranks) return CollectiveAlgorithm::Nccl;
  if (requests.size() == 1 && is_of_small_blocks(requests.front(), world_size)) return CollectiveAlgorithm::TwoShots;
  const auto has_kernels = [](const CollectiveRequest& request) {
    return facts_of(request.operation).reduces && has_peer_kernels(request.element_type);
  };
  if (!std::ranges::all_of(requests, has_kernels)) return CollectiveAlgorithm::Nccl;
  if (requests.size() == 1 && is_all_reduce(requests.front()) && size_of(requests.front()) <= max_one_shot_bytes)
    return size_of(requests.front()) == 0 ? CollectiveAlgorithm::Nccl : CollectiveAlgorithm::OneShot;
  SmallTogether together;
  if (std::ranges::all_of(requests, [&](const CollectiveRequest& each) { return together.add(each); }) &&
      together.has_data())
    return CollectiveAlgorithm::TwoShots;
  const bool needed =
      std::ranges::any_of(requests, [&](const CollectiveRequest& each) { return is_needed(each, is_reproducible); });
  return needed ? CollectiveAlgorithm::TwoShots : CollectiveAlgorithm::Nccl;
}

PeerKernelCode PeerKernels::code_of(const CollectiveRequest& request) noexcept {
  if (!facts_of(request.operation).reduces) return {};
  return {.reduces = true, .type = request.element_type, .operation = request.reduce_operation};
}

std::shared_ptr<PeerKernels> PeerKernels::make(const CommunicationId& devices,
                                               const std::vector<std::shared_ptr<CudaContext>>& contexts) {
  return all_reach_each_other(contexts) ? std::make_shared<PeerKernels>(devices.devices(), contexts) : nullptr;
}

PeerKernels::Rank::Rank(const std::shared_ptr<CudaContext>& context)
    : storage(context), base(storage.reserve(memory_size)) {
  if (storage.map(base, memory_size)) return;
  storage.release(base, memory_size);
  throw std::bad_alloc();
}

PeerKernels::Rank::~Rank() {
  storage.unmap(base, memory_size);
  storage.release(base, memory_size);
}

PeerKernels::PeerKernels(std::span<const DeviceId> devices, std::vector<std::shared_ptr<CudaContext>> contexts)
    : devices_(devices.begin(), devices.end()), contexts_(std::move(contexts)) {
  for (const auto& context : contexts_) {
    const CurrentContext current(*context);
    ranks_.push_back(std::make_unique<Rank>(context));
    // Epochs begin with 1, so the memory must contain 0. It never contains data of another process, but may contain old
    // data of this one.
    COX_CUDA_TRY(memory_set(ranks_.back()->base, 0, memory_size / sizeof(std::uint32_t)));
    COX_CUDA_TRY(stream_synchronize(nullptr));
  }
  const CurrentContext current(*contexts_.front());
  COX_CUDA_TRY(host_alloc(abort_flag_.out(), 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  ::new (abort_flag_.get()) std::atomic<std::uint32_t>(0);
}

PeerKernels::~PeerKernels() {
  const CurrentContext current(*contexts_.front());
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
  const std::string source = peer_kernels_source(code, ranks_.size());
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

std::vector<PeerKernels::Image> PeerKernels::embedded_images(const std::string& source) const {
  const EmbeddedKernels& embedded = EmbeddedKernels::of_peers();
  const std::span<const std::byte> image = embedded.find(source);
  if (image.empty()) return {};
  for (const auto& context : contexts_)
    if (!embedded.run_on(capability_of(*context), driver().version)) return {};
  return std::vector<Image>(contexts_.size(), Image(image.begin(), image.end()));
}

std::vector<PeerKernels::Image> PeerKernels::compile(const std::string& source) const {
  const KernelSource to_compile{.text = source, .name_expression = {}, .headers = {}, .options = {}};
  std::map<std::string, Image> by_architecture;
  std::vector<Image> images;
  for (const auto& context : contexts_) {
    const ComputeCapability device = capability_of(*context);
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
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) load(into, code, images[rank], rank);
    into.usable = true;
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void PeerKernels::load(Kernels& into, const PeerKernelCode& code, const Image& image, std::size_t rank) const {
  const DeviceId device = devices_[rank];
  const auto add = [&](std::vector<CUfunction>& functions, std::string name) {
    into.kept.push_back(CudaKernel::from_image(std::move(name), CubeDim::of_1d(peer_kernel_threads), image));
    into.kept.back().prepare(device);
    functions.push_back(
        into.kept.back().require_loaded({device, StreamId::current()}, std::source_location::current()).function);
  };
  if (!code.reduces) {
    add(into.all_gathers, "cox_all_gather");
    add(into.broadcasts, "cox_broadcast");
    return;
  }
  const auto named = [&](std::string_view kernel) { return peer_kernel_name(kernel, code.type, code.operation); };
  add(into.one_shots, named("cox_one_shot"));
  add(into.two_shots, named("cox_two_shot"));
  add(into.two_shot_groups, named("cox_two_shot_group"));
  add(into.reduce_scatters, named("cox_reduce_scatter"));
}

// `data`: the kernel's first argument.
template <class Data>
void PeerKernels::launch_two_shots(CUfunction function, std::size_t rank, const Data& data, std::size_t units,
                                   std::uint32_t epoch, const Count& count, const Launch& launch) const {
  launch_kernel(launch, function, blocks_for((units + ranks_.size() - 1) / ranks_.size()), data, all_at(flags_at),
                all_at(inputs_at), all_at(results_at), static_cast<std::uint32_t>(rank), epoch,
                static_cast<const void*>(abort_flag_.get()), count);
}

void PeerKernels::launch(CollectiveAlgorithm algorithm, std::size_t rank, const NcclCalls& calls,
                         std::uint32_t& launched, const Count& count, const Launch& launch) const {
  const NcclCall& first = calls.front();
  if (algorithm == CollectiveAlgorithm::OneShot)
    return launch_one_shot(find(first.request)->one_shots[rank], rank, first, next_epoch(launched), count, launch);
  if (calls.size() == 1 && is_of_small_blocks(first.request, ranks_.size()))
    return launch_blocks(rank, first, next_epoch(launched), count, launch);
  for (std::size_t at = 0; at < calls.size();) {
    SmallTogether together;
    while (at + together.count() < calls.size() && together.add(calls[at + together.count()].request)) {
    }
    if (together.count() > 1) {
      const std::size_t end = at + together.count();
      const CUfunction function = find(calls[at].request)->two_shot_groups[rank];
      Pieces data;
      for (; at < end; ++at) data.add(calls[at].source, calls[at].destination, size_of(calls[at].request));
      if (!together.has_data()) continue;
      launch_two_shots(function, rank, data, data.first[data.count], next_epoch(launched), count, launch);
      continue;
    }
    const NcclCall& call = calls[at++];
    if (call.request.operation == CollectiveOperation::ReduceScatter) {
      NcclCall part = call;
      part.request.operation = CollectiveOperation::Reduce;
      for (part.request.root = 0; part.request.root < ranks_.size(); ++part.request.root) {
        launch_whole(rank, part, launched, count, launch);
        part.source = static_cast<const std::byte*>(part.source) + size_of(call.request);
      }
    } else {
      launch_whole(rank, call, launched, count, launch);
    }
  }
}

// Splits the data into pieces that fit into the peer memory.
void PeerKernels::launch_whole(std::size_t rank, const NcclCall& call, std::uint32_t& launched, const Count& count,
                               const Launch& launch) const {
  const CollectiveRequest& request = call.request;
  const bool gets = is_all_reduce(request) || request.root == rank;
  const auto* const source = static_cast<const std::byte*>(call.source);
  auto* const destination = gets ? static_cast<std::byte*>(call.destination) : nullptr;
  const CUfunction function = find(request)->two_shots[rank];
  const std::size_t size = size_of(request);
  for (std::size_t at = 0; at < size; at += max_two_shots_bytes) {
    const Whole data{source + at, gets ? destination + at : nullptr, std::min(size - at, max_two_shots_bytes)};
    launch_two_shots(function, rank, data, two_shot_units(data.bytes), next_epoch(launched), count, launch);
  }
}

void PeerKernels::launch_one_shot(CUfunction function, std::size_t rank, const NcclCall& call, std::uint32_t epoch,
                                  const Count& count, const Launch& launch) const {
  const void* source = call.source;
  void* destination = call.destination;
  std::uint64_t bytes = size_of(call.request);
  Peers lines = all_at(epoch % 2 * lines_of_epoch);
  auto this_rank = static_cast<std::uint32_t>(rank);
  std::uint64_t stride = lines_of_rank;
  void* given_up = abort_flag_.get();
  launch_kernel(launch, function, blocks_for((bytes + one_shot_unit - 1) / one_shot_unit), source, destination, bytes,
                lines, this_rank, epoch, stride, given_up, count);
}

void PeerKernels::launch_blocks(std::size_t rank, const NcclCall& call, std::uint32_t epoch, const Count& count,
                                const Launch& launch) const {
  const Kernels& kernels = *find(call.request);
  const void* source = call.source;
  void* destination = call.destination;
  std::uint64_t bytes = size_of(call.request);
  Peers flags = all_at(flags_at);
  Peers inputs = all_at(inputs_at);
  auto this_rank = static_cast<std::uint32_t>(rank);
  auto root = static_cast<std::uint32_t>(call.request.root);
  void* given_up = abort_flag_.get();
  const unsigned blocks = blocks_for(two_shot_units(bytes));
  if (call.request.operation == CollectiveOperation::Broadcast)
    return launch_kernel(launch, kernels.broadcasts[rank], blocks, source, destination, bytes, flags, inputs, this_rank,
                         root, epoch, given_up, count);
  const bool gathers = call.request.operation == CollectiveOperation::AllGather;
  launch_kernel(launch, gathers ? kernels.all_gathers[rank] : kernels.reduce_scatters[rank], blocks, source,
                destination, bytes, flags, inputs, this_rank, epoch, given_up, count);
}

PeerKernels::Peers PeerKernels::all_at(std::size_t offset) const noexcept {
  Peers peers{};
  for (std::size_t r = 0; r < ranks_.size(); ++r) peers[r] = ranks_[r]->base + offset;
  return peers;
}

void PeerKernels::abort() noexcept { static_cast<std::atomic<std::uint32_t>*>(abort_flag_.get())->store(1); }

}  // namespace cox::detail
