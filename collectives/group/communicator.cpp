#include <coxswain/collectives/group/communicator.hpp>

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>

#include <algorithm>

namespace cox {

Communicator::Communicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number,
                           CommunicationId devices, DeviceId device)
    : group_(std::move(group)),
      number_(number),
      devices_(std::move(devices)),
      rank_(devices_.rank_of(device)),
      recorder_(group_->sequencer().recorder(number)) {}

std::exception_ptr Communicator::abort(const std::exception_ptr& cause) noexcept {
  try {
    group_->sequencer().abort(number_, cause);
    if (const std::exception_ptr refusal = group_->sequencer().broken(number_)) return refusal;
  } catch (...) {
    report_task_error({devices_.devices()[rank_], StreamId::current(), std::current_exception()});
  }
  return cause;
}

void abort_pending(CommunicationGroup& group, Communicator* communicator) {
  group.require_open();  // throws a more precise error if it is closed
  const std::exception_ptr cause = std::current_exception();
  if (communicator != nullptr) std::rethrow_exception(communicator->abort(cause));
  group.abort(cause);
  std::rethrow_exception(cause);
}

std::vector<DeviceId> Communicator::devices_in_order(const CollectiveRequest& request) const {
  std::vector<DeviceId> devices_in_order(devices_.devices().begin(), devices_.devices().end());
  if (is_transfer(request.operation) && place(request) != rank_) std::ranges::reverse(devices_in_order);
  return devices_in_order;
}

}  // namespace cox
