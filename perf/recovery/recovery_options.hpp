#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/perf/harness/options.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace cox::perf {

/// How a worker ends.
enum class Cause : int { Kill, Trap, Address, Assert, Reload };

struct RecoveryOptions {
  Options common;
  std::string devices_text;  ///< as on the command line
  std::vector<DeviceId> devices;
  std::size_t bytes = 0;       ///< kept on each device; in the mode Double each copy
  std::size_t step_bytes = 0;  ///< that a step writes; in the mode Double all
  std::size_t pass_bytes = 0;  ///< --step-bytes
  unsigned passes = 0;         ///< how often a step writes pass_bytes to other memory before its update
  KeptMode mode = KeptMode::InPlace;
  bool standby = false;
  std::vector<Cause> causes;
  std::string log;                  ///< file for the output of `cox run` and the workers; empty: none
  std::string cox;                  ///< the program `cox`
  std::chrono::seconds timeout{0};  ///< longest wait for any one thing
  std::chrono::seconds budget{0};   ///< no further round begins after this time
};

/// Parses the command line. For --help and for an error, prints the text and ends the process, with exit code 0 or 2.
[[nodiscard]] RecoveryOptions parse_recovery_options(int argc, char** argv);

/// "kill", "trap", ...
[[nodiscard]] const char* to_string(Cause cause) noexcept;

}  // namespace cox::perf
