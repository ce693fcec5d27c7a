#include <coxswain/servers/cuda/detail/cuda_communicator.hpp>

#include <coxswain/servers/cuda/detail/cuda_context.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>
#include <coxswain/servers/cuda/detail/nccl_part.hpp>
#include <coxswain/servers/cuda/detail/transfer_part.hpp>

#include <utility>

namespace cox::detail {
namespace {

NcclDevices nccl_devices(const CommunicationId& devices) {
  std::vector<int> ordinals;
  for (const DeviceId device : devices.devices()) ordinals.push_back(device.index);
  return {.devices = devices,
          .ordinals = ordinals,
          .open = [ordinals]() -> std::shared_ptr<void> {
            auto contexts = std::make_shared<std::vector<std::shared_ptr<CudaContext>>>();
            for (const int ordinal : ordinals) contexts->push_back(CudaContext::open(ordinal));
            return contexts;
          },
          .lost = gpu_faulted};
}

}  // namespace

CudaCommunicator::CudaCommunicator(std::shared_ptr<CommunicationGroup> among, CommunicatorNumber its_number,
                                   CommunicationId its_devices, DeviceId device, StreamSlot slot,
                                   std::shared_ptr<const CudaCommunication> communication)
    : Communicator(std::move(among), its_number, std::move(its_devices), device),
      slot_(slot),
      communication_(std::move(communication)),
      clique_(number() == group()->number() ? NcclClique::of(number(), nccl_devices(devices()), group()->timeout())
                                            : nullptr),
      begin_(communication_->streams.timeline(slot).submitted()),
      last_(begin_) {}

CudaCommunicator::~CudaCommunicator() {
  if (clique_ != nullptr) clique_->close();
}

StreamPosition CudaCommunicator::submit(CudaCollective collective, CudaStream& on) {
  std::shared_ptr<void> shared;
  if (rank() == 0 && collective.failure == nullptr) shared = make_shared_part(collective);
  const std::shared_ptr<CollectivePart> part = make_part(collective, on);
  last_ = begin_ + ask({.requests = std::move(collective.requests),
                        .after = std::move(collective.after),
                        .failure = std::move(collective.failure),
                        .shared = std::move(shared),
                        .launch = [part](const LaunchTurn& turn) {
                          part->sequence = turn.sequence;
                          if (turn.refusal == nullptr) return part->take_turn(turn.shared);
                          part->communication->doorbell->post(
                              [part, refusal = turn.refusal] { part->refuse(refusal); });
                        }});
  communication_->streams.timeline(slot_).submit();
  part->position = last_position();
  return last_position();
}

// Where the ranks meet.
std::shared_ptr<void> CudaCommunicator::make_shared_part(const CudaCollective& collective) const {
  if (clique_ == nullptr) return std::make_shared<PeerCopy>();
  auto operation = std::make_shared<NcclOperation>(collective.requests, world_size());
  operation->connects = clique_->connects(collective.requests);
  return operation;
}

std::shared_ptr<CollectivePart> CudaCommunicator::make_part(CudaCollective& collective, CudaStream& on) const {
  const CollectiveRequest& request = collective.requests.front();
  std::shared_ptr<CollectivePart> part;
  if (clique_ == nullptr) {
    auto transfer = std::make_shared<TransferPart>();
    transfer->place = place(request);
    transfer->memory = std::move(collective.memory);
    if (TransferPart::has_room(communication_->streams.timeline(slot_))) transfer->ready = std::move(collective.ready);
    part = std::move(transfer);
  } else {
    auto all = std::make_shared<NcclPart>();
    all->clique = clique_;
    all->calls = std::move(collective.calls);
    part = std::move(all);
  }
  part->group = group();
  part->number = number();
  part->rank = rank();
  part->waits = std::move(collective.waits);
  part->asked_on = on.shared_from_this();
  part->error_sequence = on.next_sequence();
  part->told = collective.told;
  part->site = request.caller.site;
  part->recorder = recorder();
  part->communication = communication_;
  return part;
}

}  // namespace cox::detail
