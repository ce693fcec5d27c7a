#pragma once

#include <coxswain/device_handle/device_id.hpp>
#include <coxswain/device_handle/statistics.hpp>
#include <coxswain/tools/cox/stress/fault.hpp>
#include <coxswain/tools/cox/stress/latencies.hpp>
#include <coxswain/tools/cox/stress/violation.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::stress {

/// What a run has found.
struct Report {
  std::uint64_t seed = 0;
  std::uint32_t clients = 0;
  double seconds = 0;
  std::vector<DeviceId> devices;
  std::array<bool, operation_count> done{};  ///< Whether the operation is part of the mix.
  Latencies latencies;
  FaultCounts faults{};
  std::uint64_t explained_errors = 0;  ///< Of collectives, by their faults.
  Statistics statistics;               ///< Of all device threads together.
  std::vector<Violation> violations;
  std::uint64_t peak_rss_bytes = 0;
  bool interrupted = false;  ///< Ended by the user.
  bool abandoned = false;    ///< Clients are stuck and their threads still there: only _Exit is safe now.

  [[nodiscard]] bool ok() const noexcept { return violations.empty(); }
};

/// The table, the conservation line, memory and seed; several lines.
[[nodiscard]] std::string table(const Report& report);

/// "ok", or the first violation explained and how to do it again; ends with a newline.
[[nodiscard]] std::string verdict(const Report& report);

/// As the design has it: {"ok":...,"seed":...,"operations":{...},"conservation":{...},...}.
[[nodiscard]] std::string json(const Report& report);

}  // namespace cox::stress
