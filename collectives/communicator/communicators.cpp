#include <coxswain/collectives/communicator/communicators.hpp>

#include <coxswain/collectives/watch/device_activity.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/async/blocked_wait.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/pending_collectives.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox {
namespace {

constinit std::atomic<Communicators*> made_of_process{nullptr};

Communicators* made_now() noexcept { return made_of_process.load(std::memory_order_acquire); }

/// Devices that joined before Communicators::of_process() was first called.
struct EarlyMembers {
  std::mutex mutex;
  std::vector<std::pair<DeviceId, std::uint64_t>> all;  // guarded by mutex

  static EarlyMembers& of_process() {
    static auto& members = *new EarlyMembers;
    return members;
  }
};

void explain(const std::string& text) {
  log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] { return text; });
  std::fprintf(stderr, "coxswain: %s\n", text.c_str());
}

SequencerOptions options_of_process() {
  const Settings now = settings();
  return {.max_ahead = static_cast<std::size_t>(now.get<std::uint64_t>("collectives.max_ahead")),
          .recorded_operations = static_cast<std::size_t>(now.get<std::uint64_t>("collectives.recorded")),
          .device_activity = device_activity,
          .explain_after = std::chrono::duration_cast<std::chrono::milliseconds>(
              now.get<std::chrono::nanoseconds>("collectives.explain_after")),
          .awaited_devices = detail::BlockedWait::observe,
          .explain = explain,
          .now = {}};
}

std::chrono::milliseconds timeout_in_force() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      settings().get<std::chrono::nanoseconds>("collectives.timeout"));
}

}  // namespace

Communicators& Communicators::of_process() {
  static auto& communicators = []() -> Communicators& {
    auto* const made = new Communicators(options_of_process());
    {
      EarlyMembers& members = EarlyMembers::of_process();
      const std::lock_guard lock(members.mutex);
      for (const auto& [device, generation] : members.all) made->join(device, generation);
      made_of_process.store(made, std::memory_order_release);
    }
    static constexpr PendingCollectives::Listener listener{
        .drained = [](DeviceId device,
                      std::uint64_t generation) noexcept { made_now()->leave_closing(device, generation); },
        .abandoned = [](DeviceId device) noexcept { made_now()->leave_abandoned(device); }};
    PendingCollectives::set_listener(listener);
    return *made;
  }();
  return communicators;
}

void Communicators::join_in_process(DeviceId device, std::uint64_t generation) {
  PendingCollectives::for_device(device).open(generation);
  EarlyMembers& members = EarlyMembers::of_process();
  const std::lock_guard lock(members.mutex);
  if (Communicators* const made = made_now()) return made->join(device, generation);
  members.all.emplace_back(device, generation);
}

std::shared_ptr<Communicator> Communicators::find_or_open(const CommunicationId& devices, MembershipEpoch call_epoch,
                                                          std::source_location site) {
  const std::lock_guard lock(mutex_);
  if (const auto found = communicators_.find(devices);
      found != communicators_.end() && call_epoch >= found->second.since)
    return found->second.communicator;
  MembershipEpoch since = require_none_left(devices, call_epoch, site);
  if (const auto replaced = replaced_.find(devices); replaced != replaced_.end()) {
    if (call_epoch < replaced->second)
      throw CollectiveError(
          CollectiveError::Kind::Aborted,
          "communicator " + devices.to_string() + " refused: it was replaced between this call and its execution",
          site);
    since = std::max(since, replaced->second);
  }
  auto opened = std::make_shared<Communicator>(sequencer_, devices, timeout_in_force());
  return communicators_.emplace(devices, Opened{std::move(opened), since}).first->second.communicator;
}

std::shared_ptr<Communicator> Communicators::renew(const CommunicationId& devices) {
  std::shared_ptr<Communicator> useless;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = communicators_.find(devices);
        found != communicators_.end() && !found->second.communicator->usable()) {
      MembershipEpoch& replaced = replaced_[devices];  // first: without memory for it, nothing has changed
      useless = std::move(found->second.communicator);
      communicators_.erase(found);
      replaced = MembershipEpoch::begin_next();
    }
  }
  if (useless) useless->close(useless->broken());  // with no lock held, because refused launches are called
  std::shared_ptr<Communicator> opened = find_or_open(devices);
  // The first epoch that this process opens may be one that other processes have broken.
  if (useless || !devices.spans_processes() || opened->usable()) return opened;
  return renew(devices);
}

// Under the lock. Returns the epoch that began when a member last left.
MembershipEpoch Communicators::require_none_left(const CommunicationId& devices, MembershipEpoch call_epoch,
                                                 std::source_location site) const {
  MembershipEpoch last;
  for (const DeviceId device : devices.devices()) {
    const auto found = members_.find(detail::local_name(device, own_process()));
    if (found == members_.end()) continue;
    const bool away = found->second.has_left;
    last = std::max(last, found->second.left_epoch);
    if (!away && call_epoch >= found->second.left_epoch) continue;
    throw CollectiveError(
        CollectiveError::Kind::Aborted,
        "communicator " + devices.to_string() + " refused: " + device.to_string() + " was shut down" +
            (away ? ", and has not been opened again" : " and opened again between this call and its execution"),
        site);
  }
  return last;
}

void Communicators::join(DeviceId device, std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[device];
  member.server = generation;
  member.has_left = false;
}

std::vector<std::shared_ptr<Communicator>> Communicators::leave(DeviceId device, std::uint64_t generation) {
  {
    const std::lock_guard lock(mutex_);
    Member& member = members_[device];
    if (member.server != generation) return {};
    member.server = 0;
    end_membership(device, member);
  }
  return leave_sequencer(device);
}

// Under the lock. Removes the device's communicators.
void Communicators::end_membership(DeviceId device, Member& member) {
  member.has_left = true;
  member.left_epoch = MembershipEpoch::begin_next();
  std::erase_if(communicators_, [&](const auto& entry) {
    if (!entry.first.contains(device)) return false;
    member.unclosed.push_back(entry.second.communicator);
    return true;
  });
}

std::vector<std::shared_ptr<Communicator>> Communicators::leave_sequencer(DeviceId device) {
  sequencer_.leave(device);
  const std::lock_guard lock(mutex_);
  return std::exchange(members_[device].unclosed, {});
}

void Communicators::leave_closing(DeviceId device, std::uint64_t generation) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      Member& member = members_[device];
      if (member.has_left || member.server != generation) return;
      end_membership(device, member);
    }
    sequencer_.leave(device);
  } catch (...) {
    report_task_error({device, StreamId::current(), std::current_exception()});
  }
}

void Communicators::leave_abandoned(DeviceId device) noexcept {
  try {
    const auto cause = std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::Aborted,
                        device.to_string() + " was shut down and abandoned, because a task held its device thread",
                        std::source_location()));
    {
      const std::lock_guard lock(mutex_);
      Member& member = members_[device];
      member.server = 0;
      end_membership(device, member);
    }
    for (const auto& communicator : leave_sequencer(device)) communicator->close(cause);
  } catch (...) {
    report_task_error({device, StreamId::current(), std::current_exception()});
  }
}

std::string Communicators::recorders_to_json() const {
  std::vector<std::shared_ptr<Communicator>> communicators;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [devices, opened] : communicators_) communicators.push_back(opened.communicator);
  }
  std::string json;
  for (const auto& communicator : communicators)
    json += (json.empty() ? "" : ",\n") + communicator->recorders_to_json();
  return "[" + json + "]";
}

std::string dump_flight_recorders() { return Communicators::of_process().recorders_to_json(); }

}  // namespace cox
