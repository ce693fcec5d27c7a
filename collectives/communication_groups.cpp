#include <coxswain/collectives/communication_groups.hpp>

#include <coxswain/collectives/device_activity.hpp>
#include <coxswain/device_handle/shutdown.hpp>
#include <coxswain/device_handle/stream_id.hpp>
#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/process_settings.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

namespace cox {
namespace {

constinit std::atomic<CommunicationGroups*> made_of_process{nullptr};

SequencerOptions options_of_process() {
  const Settings now = settings();
  return {.max_ahead = static_cast<std::size_t>(now.get<std::uint64_t>("collectives.max_ahead")),
          .recorded_operations = static_cast<std::size_t>(now.get<std::uint64_t>("collectives.recorded")),
          .device_activity = device_activity};
}

std::chrono::milliseconds timeout_in_force() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      settings().get<std::chrono::nanoseconds>("collectives.timeout"));
}

}  // namespace

CommunicationGroups& CommunicationGroups::of_process() {
  static auto& groups = []() -> CommunicationGroups& {
    auto* const made = new CommunicationGroups(options_of_process());
    made_of_process.store(made, std::memory_order_release);
    set_abandon_listener([](DeviceId device) noexcept { of_process().leave_abandoned(device); });
    return *made;
  }();
  return groups;
}

void CommunicationGroups::arrive_in_process(DeviceId device, std::uint64_t generation) {
  // Acquire pairs with the release above. Without groups no device has left one.
  if (CommunicationGroups* const made = made_of_process.load(std::memory_order_acquire))
    made->arrive(device, generation);
}

CommunicationGroups::Group CommunicationGroups::find_or_open(const CommunicationId& devices, MembershipEpoch called,
                                                             std::source_location site) {
  const std::lock_guard lock(mutex_);
  require_none_left(devices, called, site);
  if (const auto found = groups_.find(devices); found != groups_.end()) return found->second;
  auto opened = std::make_shared<CommunicationGroup>(sequencer_, devices, timeout_in_force());
  return groups_.emplace(devices, std::move(opened)).first->second;
}

CommunicationGroups::Group CommunicationGroups::renew(const CommunicationId& devices) {
  Group useless;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = groups_.find(devices); found != groups_.end() && !found->second->usable()) {
      useless = std::move(found->second);
      groups_.erase(found);
    }
  }
  if (useless) useless->close(useless->broken());  // what it refuses is answered with no lock held
  return find_or_open(devices);
}

// Under the lock.
void CommunicationGroups::require_none_left(const CommunicationId& devices, MembershipEpoch called,
                                            std::source_location site) const {
  for (const DeviceId device : devices.devices()) {
    const auto found = departures_.find(device);
    if (found == departures_.end()) continue;
    const bool away = found->second.away;
    if (!away && called >= found->second.epoch) continue;
    throw CollectiveError(
        CollectiveError::Kind::Aborted,
        "no communicator " + devices.to_string() + ": " + device.to_string() + " was shut down" +
            (away ? ", and has not been opened again" : " and opened again after this was called, and before it ran"),
        site);
  }
}

void CommunicationGroups::arrive(DeviceId device, std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  const auto found = departures_.find(device);
  if (found == departures_.end()) return;
  found->second.generation = generation;
  found->second.away = false;
}

std::vector<CommunicationGroups::Group> CommunicationGroups::leave(DeviceId device, std::uint64_t generation) {
  std::vector<Group> left;
  const auto take = [&](const auto& which) {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [&](const auto& entry) {
      if (!std::ranges::binary_search(entry.first.devices(), device) || !which(*entry.second)) return false;
      left.push_back(entry.second);
      return true;
    });
  };
  {
    const std::lock_guard lock(mutex_);
    const auto [departure, first] = departures_.try_emplace(device);
    if (!first && !departure->second.away && generation < departure->second.generation) return {};
    departure->second = {.epoch = MembershipEpoch::begin_next()};
  }
  take([](const CommunicationGroup&) { return true; });
  sequencer_.leave(device);
  take([](const CommunicationGroup& group) { return !group.usable(); });  // opened in between
  return left;
}

void CommunicationGroups::leave_abandoned(DeviceId device) noexcept {
  try {
    const auto cause = std::make_exception_ptr(CollectiveError(
        CollectiveError::Kind::Aborted,
        device.to_string() + " was shut down, and abandoned, since a task held its thread", std::source_location()));
    for (const Group& group : leave(device)) group->close(cause);
  } catch (...) {
    report_task_error({device, StreamId::current(), std::current_exception()});
  }
}

std::string CommunicationGroups::recorders_to_json() const {
  std::vector<Group> groups;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [devices, group] : groups_) groups.push_back(group);
  }
  std::string json;
  for (const Group& group : groups) json += (json.empty() ? "" : ",\n") + group->recorders_to_json();
  return "[" + json + "]";
}

std::string dump_flight_recorders() { return CommunicationGroups::of_process().recorders_to_json(); }

}  // namespace cox
