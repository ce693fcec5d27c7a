#pragma once

#include <coxswain/collectives/sequencer/open_communicators.hpp>
#include <coxswain/collectives/sequencer/stalled_operation.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <functional>
#include <map>
#include <string>

namespace cox::detail {

/// By device: the text of the error that describes what its device thread is doing.
using Activities = std::map<DeviceId, std::string>;

/// The activities of the missing devices. Calls `device_activity`, which is user code and may be empty. If memory runs
/// out, the result is incomplete.
[[nodiscard]] Activities activities_of(const StalledOperation& stall,
                                       const std::function<std::string(DeviceId)>& device_activity) noexcept;

/// The error with which the communicator's oldest operation is refused after its deadline. Names the missing ranks.
/// Precondition: the communicator has an unresolved operation.
[[nodiscard]] CollectiveError overdue_error(const OpenCommunicators& communicators,
                                            const CommunicatorSequence& communicator, const Activities& activities);

}  // namespace cox::detail
