#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace cox::stress {

/// What a process of a run has done.
struct ProcessSummary {
  std::uint64_t operations = 0;  ///< of its clients
  std::uint64_t rounds = 0;      ///< of collectives, of which it has checked the results of its ranks
  std::uint64_t faults = 0;
  std::uint64_t explained_errors = 0;
  std::uint64_t violations = 0;
  std::uint64_t digest = 0;  ///< of all results of its ranks
  std::uint64_t peak_rss_bytes = 0;

  friend bool operator==(const ProcessSummary&, const ProcessSummary&) = default;
};

/// A run whose rounds of collectives are a function of the seed alone (Agenda), so that several processes can do them
/// together.
struct SharedRun {
  std::vector<DeviceId> devices{};  ///< of all processes, by the names that all of them use, in the order of ranks
  std::size_t first_own = 0;        ///< the position of Options::devices.front() among them; the others follow it
  std::uint16_t process = 0;        ///< the number of this process
  std::optional<std::uint64_t> rounds{};  ///< The run ends after so many rounds, if no process ends it earlier.
  /// Gives the summary of this process to the others, and returns those of all, by process. Called at the end of the
  /// work, while the devices are open. Null in a run of one process.
  std::function<std::vector<ProcessSummary>(const ProcessSummary&)> exchange{};
};

}  // namespace cox::stress
