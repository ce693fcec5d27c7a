#pragma once

#include <coxswain/tests/collectives/launch_of.hpp>
#include <coxswain/tests/runtime/thrown.hpp>

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

using Dependencies = SmallVector<CollectiveId, 2>;

constexpr DeviceId device(std::uint16_t index) { return {.type = 0, .index = index}; }

inline CommunicationId among(const std::vector<std::uint16_t>& indices) {
  std::vector<DeviceId> devices;
  for (const std::uint16_t index : indices) devices.push_back(device(index));
  return CommunicationId(devices);
}

inline CollectiveRequest of_count(std::size_t count, std::source_location site = std::source_location::current()) {
  return {.count = count, .caller = {.site = site}};
}
/// ":31", as it stands in errors.
inline std::string line_of(const CollectiveRequest& request) {
  return ":" + std::to_string(request.caller.site.line());
}

/// What a rank was told, and how often. Allocates nothing when it is told.
struct Told {
  std::vector<LaunchGrant> turns;

  Told() { turns.reserve(64); }
  std::shared_ptr<CollectiveLaunch> launch() {
    return launch_of([this](const LaunchGrant& grant) { turns.push_back(grant); });
  }
  [[nodiscard]] std::size_t times() const { return turns.size(); }
  void refused() const {
    if (turns.back().refusal) std::rethrow_exception(turns.back().refusal);
  }
  [[nodiscard]] std::optional<CollectiveError::Kind> refusal() const {
    return kind_of<CollectiveError>([&] { refused(); });
  }
  [[nodiscard]] std::string text() const {
    return message_of([&] { refused(); });
  }
};

/// Time stands still, so that only expire() times anything out.
struct Bench {
  Told a, b, c, d;  // They outlive the sequencer, which answers everybody at its end.
  Watchdog::Time start = std::chrono::steady_clock::now();
  Sequencer sequencer{{.max_ahead = 3,
                       .device_activity = [](DeviceId id) { return "busy with " + std::to_string(id.index); },
                       .now = [now = start] { return now; }}};
  CommunicatorNumber pair = sequencer.open(among({0, 1}), std::chrono::hours(1));

  std::uint64_t submit(CommunicatorNumber communicator, std::size_t rank, const CollectiveRequest& request,
                       std::shared_ptr<CollectiveLaunch> launch, Dependencies after = {}) {
    return sequencer.submit(communicator, rank,
                            {.requests = {request}, .dependencies = std::move(after), .launch = std::move(launch)});
  }
};

}  // namespace cox::test
