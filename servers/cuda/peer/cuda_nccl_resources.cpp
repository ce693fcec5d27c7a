#include <coxswain/servers/cuda/peer/cuda_nccl_resources.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/peer/nccl_ctas.hpp>

#include <new>
#include <source_location>
#include <string>

namespace cox::detail {
namespace {

std::vector<std::shared_ptr<CudaContext>> contexts_of(const std::vector<int>& ordinals) {
  std::vector<std::shared_ptr<CudaContext>> contexts;
  for (const int ordinal : ordinals) contexts.push_back(CudaContext::open(ordinal));
  return contexts;
}

}  // namespace

CudaNcclResources::CudaNcclResources(const CommunicationId& devices, const std::vector<int>& ordinals,
                                     bool is_reproducible)
    : CudaNcclResources(contexts_of(ordinals)) {  // delegates, so that the destructor also runs if the rest throws
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const CurrentContext current(*contexts_[rank]);
    COX_CUDA_TRY(stream_create(ranks_[rank].stream.out(), CU_STREAM_NON_BLOCKING, 0));
    COX_CUDA_TRY(memory_alloc(ranks_[rank].scratch.out(), scratch_size));
  }
  ctas_ = nccl_ctas(devices, ordinals);
  if (devices.spans_processes()) {
    make_exchange(devices, is_reproducible);
  } else {
    make_peer_kernels(devices);
  }
}

void CudaNcclResources::refuse_peer_kernels(const std::string& why, const std::exception_ptr& cause) {
  why_no_peer_kernels_ =
      std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Unsupported, why, std::source_location(), cause));
}

void CudaNcclResources::make_peer_kernels(const CommunicationId& devices) {
  if (!settings().get<bool>("collectives.peer_memory"))
    return refuse_peer_kernels("the setting collectives.peer_memory is false");
  try {
    peer_kernels_ = PeerKernels::make(devices, contexts_);
    if (peer_kernels_ == nullptr) refuse_peer_kernels("not all of these GPUs can access each other's memory");
  } catch (const std::bad_alloc&) {
    refuse_peer_kernels("there was no memory for kernels in peer memory when the devices were opened",
                        std::current_exception());
    log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] {
      return "no memory for the peer kernels of " + devices.to_string() +
             ": small collectives use NCCL, which is slower; what it does not reduce is refused";
    });
  }
}

void CudaNcclResources::make_exchange(const CommunicationId& devices, bool is_reproducible) {
  refuse_peer_kernels("the processes have not exchanged memory");
  if (devices.world_size() > PeerKernels::max_ranks) return;
  std::vector<CudaPeerExchange::Rank> own;
  for (std::size_t rank = 0; rank < devices.world_size(); ++rank) {
    const DeviceId device = local_name(devices.devices()[rank], own_process());
    if (device.process != 0) continue;
    const std::size_t place = own.size();
    own.push_back({.own = {rank, device, contexts_[place]},
                   .scratch = ranks_[place].scratch.get(),
                   .stream = ranks_[place].stream.get()});
  }
  exchange_ =
      std::make_unique<CudaPeerExchange>(devices, std::move(own), is_reproducible,
                                         [this](CudaPeerExchange::Result result) { take_result(std::move(result)); });
}

void CudaNcclResources::take_result(CudaPeerExchange::Result result) noexcept {
  peer_kernels_ = std::move(result.kernels);
  can_compile_ = result.can_compile;
  if (peer_kernels_ != nullptr) return;
  try {
    refuse_peer_kernels(result.why_not, result.cause);
  } catch (...) {  // no memory for the reason
    why_no_peer_kernels_ = std::current_exception();
  }
}

bool CudaNcclResources::has_kernels_for(const CollectiveRequest& request) const {
  return can_compile_ || peer_kernels_->are_embedded(request);
}

CudaNcclResources::~CudaNcclResources() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const CurrentContext current(*contexts_[rank]);
    // What NCCL has aborted may still be ending: freeing the memory would wait for that, too.
    if (ranks_[rank].stream && !gpu_faulted()) COX_CUDA_CHECK(stream_synchronize(ranks_[rank].stream.get()));
    ranks_[rank] = {};
  }
}

void* CudaNcclResources::scratch(std::size_t rank) const noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device
  return reinterpret_cast<void*>(ranks_[rank].scratch.get());
}

bool CudaNcclResources::is_idle(std::size_t rank) const {
  const CurrentContext current(*contexts_[rank]);
  const CUresult result = driver().stream_query(stream(rank));
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) throw_cuda_error(result, "stream_query", std::source_location::current());
  return true;
}

void CudaNcclResources::synchronize(std::size_t rank) const {
  const CurrentContext current(*contexts_[rank]);
  COX_CUDA_TRY(stream_synchronize(stream(rank)));
}

}  // namespace cox::detail
