#pragma once

#include <coxswain/tools/cox/stress/operation.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox::stress {

/// The fault that is injected into one operation.
enum class Fault : std::uint8_t {
  None,
  Throw,   ///< The task or kernel throws.
  Cancel,  ///< The stop_token is triggered before or while the task is queued.
  Expire,  ///< The deadline has passed.
  // For collectives only:
  Stall,     ///< A stream or a device thread is held up for a few milliseconds.
  Missing,   ///< One rank does not make its call.
  Mismatch,  ///< One rank passes another count.
  Shutdown,  ///< The device is shut down and opened again.
  Leave,     ///< A rank aborts its communicator, or its device is shut down and opened again.
  Poison,    ///< Memory that a failed operation should have written is used; also for launches.
};

inline constexpr std::array<std::string_view, 10> fault_names{"none",    "throw",    "cancel",   "expire", "stall",
                                                              "missing", "mismatch", "shutdown", "leave",  "poison"};
inline constexpr std::size_t fault_count = fault_names.size();
static_assert(fault_count == static_cast<std::size_t>(Fault::Poison) + 1);

[[nodiscard]] constexpr std::string_view to_string(Fault fault) noexcept {
  return fault_names[static_cast<std::size_t>(fault)];
}

/// How often each fault was injected, in the order of the enumeration.
using FaultCounts = std::array<std::uint64_t, fault_count>;

/// The probability of each fault, from 0 (never) to 1 (always). An operation that cannot have the chosen fault is done
/// without one.
struct FaultRates {
  double throws = 0;
  double cancel = 0;
  double expire = 0;
  double stall = 0;
  double missing = 0;
  double mismatch = 0;
  double shutdown = 0;
  double leave = 0;
  double poison = 0;

  /// "throw=0.001,missing=0.0001". Throws ArgumentError.
  [[nodiscard]] static FaultRates parse(std::string_view option, std::string_view text);

  /// Whether collectives may end in errors.
  [[nodiscard]] bool break_collectives() const noexcept { return missing + mismatch + shutdown + leave + poison > 0; }
  /// Whether devices may be shut down.
  [[nodiscard]] bool close_devices() const noexcept { return shutdown + leave > 0; }
  /// The rate of one fault; 0 for None.
  [[nodiscard]] double rate(Fault fault) const noexcept;
  [[nodiscard]] Fault pick(Operation operation, Random& random) const noexcept;
};

}  // namespace cox::stress
