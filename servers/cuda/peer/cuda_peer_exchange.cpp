#include <coxswain/servers/cuda/peer/cuda_peer_exchange.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/fnv1a.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/kernel_cache.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/nvrtc.hpp>
#include <coxswain/servers/cuda/peer/embedded_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernel_limits.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace cox::detail {
namespace {

using world::DescriptorAddress;

enum class Ability : std::uint8_t { Unable, SettingFalse, Able };

// Equal in processes if their kernels use the memory in the same way.
std::uint64_t checksum_of_kernels(std::size_t ranks) {
  const PeerKernelLimits& limits = peer_kernel_limits(ranks);
  std::string text = peer_kernels_source({}, ranks) +
                     peer_kernels_source({.reduces = true, .type = ElementType::F32}, ranks) +
                     std::to_string(PeerKernels::memory_size(ranks));
  for (const std::size_t limit :
       {limits.lines, limits.one_shot, limits.all_reduce, limits.block_lines, limits.broadcast_lines, limits.blocks,
        limits.broadcast, std::size_t{limits.thread_blocks}})
    text += ' ' + std::to_string(limit);
  return fnv1a(text);
}

// Of the kernels that were compiled when the library was built; 0 if not all devices can run them.
std::uint64_t checksum_of_images(const std::vector<CudaPeerExchange::Rank>& ranks) {
  const EmbeddedKernels& embedded = EmbeddedKernels::of_peers();
  for (const CudaPeerExchange::Rank& rank : ranks)
    if (!embedded.run_on(capability_of(*rank.own.context), driver().version)) return 0;
  std::string text;
  for (const EmbeddedKernels::Image& image : embedded.images) text += std::to_string(image.source) + ' ';
  return fnv1a(text);
}

// Whether NVRTC compiles for these devices: it may be too old for them, or lack files.
bool can_compile_for(const std::vector<CudaPeerExchange::Rank>& ranks) {
  try {
    const KernelSource small{
        .text = "extern \"C\" __global__ void cox_small() {}", .name_expression = {}, .headers = {}, .options = {}};
    for (const CudaPeerExchange::Rank& rank : ranks) {
      const ComputeCapability device = capability_of(*rank.own.context);
      const std::string architecture = architecture_name(device.major, device.minor);
      static_cast<void>(compile_cached(nvrtc(), small, architecture, key_of(nvrtc(), small, architecture),
                                       KernelCache::of_process()));
    }
    return true;
  } catch (...) {
    log::write(LogSubsystem::Collectives, LogLevel::Info, [] {
      return "NVRTC does not compile kernels in peer memory here: " + describe_cause(std::current_exception());
    });
    return false;
  }
}

}  // namespace

struct CudaPeerExchange::Greeting {
  std::uint64_t neighbourhood = 0;
  std::uint64_t kernels = 0;
  std::uint64_t images = 0;
  DescriptorAddress address;
  Ability ability = Ability::Unable;
  bool can_compile = false;
  bool is_reproducible = false;
};

CudaPeerExchange::CudaPeerExchange(CommunicationId devices, std::vector<Rank> ranks, bool is_reproducible,
                                   UniqueFunction<void(Result)> then)
    : devices_(std::move(devices)),
      ranks_(std::move(ranks)),
      is_reproducible_(is_reproducible),
      then_(std::move(then)) {}

PeerMemoryExchange::Message CudaPeerExchange::message(std::size_t) noexcept {
  static_assert(std::is_trivially_copyable_v<Greeting> && sizeof(Greeting) <= message_size);
  const Greeting greeting = make_greeting();
  Message message{};
  std::memcpy(message.data(), &greeting, sizeof(greeting));
  return message;
}

CudaPeerExchange::Greeting CudaPeerExchange::make_greeting() noexcept try {
  Greeting greeting;
  greeting.is_reproducible = is_reproducible_;
  greeting.ability = Ability::SettingFalse;
  if (!settings().get<bool>("collectives.peer_memory")) return greeting;
  greeting.ability = Ability::Unable;
  greeting.neighbourhood = world::descriptor_neighbourhood();
  greeting.kernels = checksum_of_kernels(devices_.world_size());
  greeting.images = checksum_of_images(ranks_);
  greeting.can_compile = can_compile_for(ranks_);
  if (exchange_ == nullptr) exchange_ = std::make_unique<world::DescriptorExchange>();
  greeting.address = exchange_->address();
  greeting.ability = Ability::Able;
  return greeting;
} catch (...) {
  result_.cause = std::current_exception();
  warn("this process cannot exchange memory with others");
  return {};
}

// The decision allocates nothing, so that it is the same in all processes.
bool CudaPeerExchange::begin(const std::vector<Message>& messages) noexcept {
  std::array<Greeting, PeerKernels::max_ranks> all;
  const std::span<Greeting> greetings = std::span(all).first(messages.size());
  for (std::size_t rank = 0; rank < messages.size(); ++rank)
    std::memcpy(&greetings[rank], messages[rank].data(), sizeof(Greeting));
  const Obstacle obstacle = obstacle_of(greetings);
  if (obstacle.kind != Obstacle::Kind::None) {
    try {
      result_.why_not = text_of(obstacle);
    } catch (...) {  // no memory for the text
    }
    end(false);
    return false;
  }
  try {
    result_.can_compile = std::ranges::all_of(greetings, &Greeting::can_compile);
    share(greetings);
  } catch (...) {  // advance() returns false
    result_.cause = std::current_exception();
    exchange_.reset();
  }
  return true;
}

CudaPeerExchange::Obstacle CudaPeerExchange::obstacle_of(std::span<const Greeting> greetings) noexcept {
  using enum Obstacle::Kind;
  for (std::size_t rank = 0; rank < greetings.size(); ++rank) {
    if (greetings[rank].ability == Ability::SettingFalse) return {Setting, rank};
    if (greetings[rank].ability == Ability::Unable || greetings[rank].neighbourhood == 0) return {System, rank};
  }
  const auto differ = [&](const auto& member) {
    return std::ranges::any_of(greetings,
                               [&](const Greeting& each) { return each.*member != greetings.front().*member; });
  };
  if (differ(&Greeting::neighbourhood)) return {Hosts};
  if (differ(&Greeting::is_reproducible)) return {Order};
  const bool all_compile = std::ranges::all_of(greetings, &Greeting::can_compile);
  const bool have_images = greetings.front().images != 0 && !differ(&Greeting::images);
  return {differ(&Greeting::kernels) || (!all_compile && !have_images) ? Kernels : None};
}

std::string CudaPeerExchange::text_of(const Obstacle& obstacle) const {
  const std::string process = "the process of " + devices_.devices()[obstacle.rank].to_string();
  switch (obstacle.kind) {
    using enum Obstacle::Kind;
    case None: break;
    case Setting: return "the setting collectives.peer_memory is false in " + process;
    case System: return process + " cannot exchange memory with others";
    case Hosts: return "not all processes of the communicator are on one host, in one network namespace, of one user";
    case Order: return "the setting collectives.reproducible is not the same in all processes";
    case Kernels: return "not all processes have the same kernels in peer memory, or NVRTC to compile them";
  }
  return {};
}

void CudaPeerExchange::share(std::span<const Greeting> greetings) {
  std::vector<std::shared_ptr<CudaContext>> contexts;
  for (const Rank& rank : ranks_) contexts.push_back(rank.own.context);
  if (!all_reach_each_other(contexts))
    throw std::runtime_error("not all GPUs of this process can access each other's memory");
  const std::size_t bytes = PeerKernels::memory_size(devices_.world_size());
  memory_.resize(devices_.world_size());
  std::vector<FileDescriptor> own;
  for (const Rank& rank : ranks_) {
    auto memory = PeerMemory::create(rank.own.context, bytes, PeerMemory::Sharing::OtherProcesses);
    own.push_back(memory->share());
    memory_[rank.own.rank] = std::move(memory);
  }
  std::map<std::uint16_t, std::vector<std::size_t>> by_process;
  for (std::size_t rank = 0; rank < greetings.size(); ++rank)
    if (memory_[rank] == nullptr) by_process[devices_.devices()[rank].process].push_back(rank);
  std::vector<DescriptorAddress> addresses;
  for (auto& [process, ranks] : by_process) {
    addresses.push_back(greetings[ranks.front()].address);
    others_.push_back(std::move(ranks));
  }
  exchange_->begin(addresses, std::move(own));
}

std::optional<bool> CudaPeerExchange::advance() noexcept {
  if (exchange_ == nullptr) return false;
  try {
    if (!exchange_->advance()) return std::nullopt;
    import(exchange_->take());
    exchange_.reset();
    return true;
  } catch (...) {
    result_.cause = std::current_exception();
    exchange_.reset();
    return false;
  }
}

void CudaPeerExchange::import(std::vector<std::vector<FileDescriptor>> shared) {
  const std::size_t bytes = PeerKernels::memory_size(devices_.world_size());
  std::vector<PeerKernels::OwnRank> own;
  std::vector<std::shared_ptr<CudaContext>> contexts;
  for (const Rank& rank : ranks_) {
    own.push_back(rank.own);
    contexts.push_back(rank.own.context);
  }
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (shared[i].size() != others_[i].size())
      throw std::runtime_error("another process has shared memory of another number of ranks");
    for (std::size_t place = 0; place < others_[i].size(); ++place)
      memory_[others_[i][place]] = PeerMemory::import(contexts, shared[i][place], bytes);
  }
  result_.kernels =
      std::make_shared<PeerKernels>(std::move(own), std::move(memory_), peer_kernel_limits(devices_.world_size()));
}

void CudaPeerExchange::end(bool all_have_access) noexcept {
  exchange_.reset();
  if (!all_have_access) {
    result_.kernels = nullptr;
    memory_.clear();
  }
  try {
    if (!all_have_access && result_.why_not.empty()) {
      result_.why_not = result_.cause == nullptr
                            ? "another process has no access to the memory of all GPUs of the communicator"
                            : "this process has no access to the memory of all GPUs of the communicator";
      warn(result_.why_not);
    }
  } catch (...) {  // no memory for the text
  }
  then_(std::exchange(result_, {}));
}

void CudaPeerExchange::warn(const std::string& why) const noexcept try {
  log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] {
    return "small collectives of " + devices_.to_string() + " use NCCL, which is slower: " + why +
           (result_.cause == nullptr ? "" : ": " + describe_cause(result_.cause));
  });
} catch (...) {  // no memory for the text
}

void CudaPeerExchange::write(std::size_t rank, std::span<const std::byte> bytes) const {
  const CurrentContext current(*ranks_[rank].own.context);
  COX_CUDA_TRY(copy_to_device(ranks_[rank].scratch, bytes.data(), bytes.size(), ranks_[rank].stream));
}

void CudaPeerExchange::read(std::size_t rank, std::span<std::byte> bytes) const {
  const CurrentContext current(*ranks_[rank].own.context);
  COX_CUDA_TRY(copy_to_host(bytes.data(), ranks_[rank].scratch, bytes.size(), ranks_[rank].stream));
  COX_CUDA_TRY(stream_synchronize(ranks_[rank].stream));
}

}  // namespace cox::detail
