#include <coxswain/collectives/communicator.hpp>

#include <algorithm>

namespace cox {

Communicator::Communicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number,
                           CommunicationId devices, DeviceId device)
    : group_(std::move(group)),
      number_(number),
      devices_(std::move(devices)),
      rank_(devices_.rank_of(device)),
      recorder_(group_->sequencer().recorder(number)) {}

std::vector<DeviceId> Communicator::places(const CollectiveRequest& request) const {
  std::vector<DeviceId> places(devices_.devices().begin(), devices_.devices().end());
  if (is_transfer(request.operation) && place(request) != rank_) std::ranges::reverse(places);
  return places;
}

}  // namespace cox
