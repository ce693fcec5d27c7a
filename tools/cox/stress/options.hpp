#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/tools/cox/stress/fault.hpp>
#include <coxswain/tools/cox/stress/mix.hpp>
#include <coxswain/tools/cox/stress/payload.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace cox::stress {

/// Which reductions the devices do exactly as they are recomputed.
enum class Reductions : std::uint8_t {
  All,
  /// Not those of floats that multiply by the inverse of a number which is no power of two; and 16-bit integers and
  /// means of integers, which NCCL does not do, on their own only.
  NcclAndPeerMemory,
  /// Nor these.
  Nccl,
};

/// What a run does.
struct Options {
  static constexpr std::uint32_t max_clients = 1024;

  std::vector<DeviceId> devices;
  std::optional<std::chrono::duration<double>> duration;  ///< Ends after this time,
  std::optional<std::uint64_t> operations;                ///< or when all clients together have done so many.
  std::uint32_t clients = 8;
  std::uint64_t seed = 0;
  Mix mix;
  Payload payload;
  FaultRates faults;
  Reductions reductions = Reductions::All;
  bool scarce_pinned_memory = false;  ///< Copies may find none.
  /// A client that gets no answer for so long is reported as stuck.
  std::chrono::seconds patience{60};
  /// Called once at the end of the work, while the devices are still open and have nothing left to do.
  std::function<void()> on_idle;
  /// Called all the time while it runs, on the thread of the run.
  std::function<void()> on_poll;
  /// Called once, on the thread of the run, when there is a violation, while the devices are still open.
  std::function<void()> on_violation;
};

}  // namespace cox::stress
