#pragma once

#include <coxswain/collectives/sequencer/open_communicators.hpp>
#include <coxswain/collectives/sequencer/stalled_operation.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <functional>
#include <map>
#include <string>

namespace cox::detail {

/// What devices are doing, as the error says it.
using Activities = std::map<DeviceId, std::string>;

/// Of those that are missing, by asking `device_activity`, which is the user's code and may be empty. Less than that is
/// known where there is no memory for it.
[[nodiscard]] Activities activities_of(const StalledOperation& stall,
                                       const std::function<std::string(DeviceId)>& device_activity) noexcept;

/// What the oldest operation of the communicator, which has one, is refused with when its time is up. Names who is
/// missing.
[[nodiscard]] CollectiveError overdue_error(const OpenCommunicators& communicators,
                                            const CommunicatorSequence& communicator, const Activities& activities);

}  // namespace cox::detail
