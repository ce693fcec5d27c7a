#include <coxswain/collectives/sequencer/overdue.hpp>

#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/task_error.hpp>

#include <fmt/format.h>

#include <exception>

namespace cox::detail {
namespace {

std::string activity(DeviceId device, const std::function<std::string(DeviceId)>& device_activity) {
  try {
    return ", its device thread: " + device_activity(device);
  } catch (...) {
    return ", its device thread: unknown, " + cox::describe(std::current_exception());
  }
}

}  // namespace

Activities activities_of(const StalledOperation& stall,
                         const std::function<std::string(DeviceId)>& device_activity) noexcept {
  Activities activities;
  if (!device_activity) return activities;
  try {
    for (const StalledOperation::Missing& missing : stall.missing)
      activities.emplace(missing.device, activity(missing.device, device_activity));
  } catch (...) {
    return activities;
  }
  return activities;
}

CollectiveError overdue_error(const OpenCommunicators& communicators, const CommunicatorSequence& communicator,
                              const Activities& activities) {
  StalledOperation stall = find_stalled_operation(communicators, communicator, communicator.timeout());
  for (const StalledOperation::Missing& missing : stall.missing) {
    const auto found = activities.find(missing.device);
    stall.text += fmt::format("; {} is missing, {}{}", missing.device.to_string(), missing.last,
                              found == activities.end() ? "" : found->second);
  }
  const CollectiveRequests& requests = communicator.oldest()->arrived.front().requests;
  return {CollectiveError::Kind::Timeout, stall.text, requests.front().caller.site};
}

}  // namespace cox::detail
