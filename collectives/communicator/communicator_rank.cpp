#include <coxswain/collectives/communicator/communicator_rank.hpp>

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>

#include <algorithm>
#include <utility>

namespace cox {

CommunicatorRank::CommunicatorRank(std::shared_ptr<Communicator> communicator, CommunicatorNumber number,
                                   CommunicationId devices, DeviceId device)
    : communicator_(std::move(communicator)),
      number_(number),
      devices_(std::move(devices)),
      device_(device),
      rank_(devices_.rank_of(device)),
      is_first_of_process_(rank_ == 0 || devices_.devices()[rank_ - 1].process != devices_.devices()[rank_].process),
      recorder_(communicator_->sequencer().recorder(number)),
      shared_(communicator_->sequencer().shared(number)) {}

std::exception_ptr CommunicatorRank::abort(const std::exception_ptr& cause) noexcept {
  try {
    communicator_->sequencer().abort(number_, cause);
    if (const std::exception_ptr refusal = communicator_->sequencer().broken(number_)) return refusal;
  } catch (...) {
    report_task_error({device_, StreamId::current(), std::current_exception()});
  }
  return cause;
}

void abort_pending(Communicator& communicator, CommunicatorRank* rank) {
  communicator.require_open();  // throws a more precise error if it is closed
  const std::exception_ptr cause = std::current_exception();
  if (rank != nullptr) std::rethrow_exception(rank->abort(cause));
  communicator.abort(cause);
  std::rethrow_exception(cause);
}

std::vector<DeviceId> CommunicatorRank::devices_in_order(const CollectiveRequest& request) const {
  std::vector<DeviceId> devices_in_order(devices_.devices().begin(), devices_.devices().end());
  if (is_transfer(request.operation) && place(request) != rank_) std::ranges::reverse(devices_in_order);
  return devices_in_order;
}

}  // namespace cox
