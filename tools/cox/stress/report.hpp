#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/statistics.hpp>
#include <coxswain/tools/cox/stress/fault.hpp>
#include <coxswain/tools/cox/stress/latencies.hpp>
#include <coxswain/tools/cox/stress/mix.hpp>
#include <coxswain/tools/cox/stress/payload.hpp>
#include <coxswain/tools/cox/stress/shared_run.hpp>
#include <coxswain/tools/cox/stress/violation.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::stress {

/// The result of a run.
struct Report {
  std::uint64_t seed = 0;
  std::uint32_t clients = 0;
  Mix mix;
  Payload payload;
  FaultRates rates;
  std::chrono::system_clock::time_point begun;
  double seconds = 0;
  std::vector<DeviceId> devices;
  std::array<bool, operation_count> done{};  ///< Whether the operation is part of the mix.
  Latencies latencies;
  FaultCounts faults{};
  std::uint64_t explained_errors = 0;  ///< Errors of collectives that their faults explain.
  /// Internal tasks that failed and were repeated in another way, because host.pinned_memory is small.
  std::uint64_t without_pinned_memory = 0;
  Statistics statistics;  ///< Of all device threads together.
  std::vector<Violation> violations;
  std::uint64_t peak_rss_bytes = 0;
  std::uint16_t process = 0;              ///< in a SharedRun
  std::vector<ProcessSummary> processes;  ///< In a SharedRun: of all, by number. After a violation only of this one.
  bool has_digest = false;                ///< All rounds that the options name were done.
  bool interrupted = false;               ///< Ended by the user.
  bool abandoned = false;                 ///< Clients are stuck and their threads still run: only _Exit is safe now.

  [[nodiscard]] bool ok() const noexcept { return violations.empty(); }
  /// The resource that the process could not get (memory, threads, descriptors), if that ended the run; else empty. If
  /// it is not empty, the violations are its consequences.
  [[nodiscard]] std::string shortage() const;
  /// Of the results of all ranks: a function of seed, number of devices, mix, payload and faults.
  [[nodiscard]] std::uint64_t digest() const noexcept;
};

/// The table, the conservation line, memory and seed; several lines.
[[nodiscard]] std::string table(const Report& report);

/// "ok", or the first violation and how to repeat the run, or the resource that the process could not get; at most a
/// page, ends with a newline. `flight_recorder` is the file with the flight recorders; empty: there is none.
[[nodiscard]] std::string verdict(const Report& report, const std::string& flight_recorder = "");

/// {"schema":1,"version":...,"ok":...,"seed":"...","operations":{...},"conservation":{...},...}. The seed is a string,
/// because it may be larger than the numbers that JSON readers hold exactly.
[[nodiscard]] std::string json(const Report& report);

}  // namespace cox::stress
