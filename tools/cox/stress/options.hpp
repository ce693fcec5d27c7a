#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/tools/cox/stress/fault.hpp>
#include <coxswain/tools/cox/stress/mix.hpp>
#include <coxswain/tools/cox/stress/payload.hpp>
#include <coxswain/tools/cox/stress/shared_run.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace cox::stress {

/// Which reductions a run uses: those whose results on the devices equal those that the CPU recomputes, for each way in
/// which the devices may reduce.
enum class Reductions : std::uint8_t {
  All,
  /// All but means of floats over a number of ranks that is not a power of two, which multiply by its inverse. 16-bit
  /// integers and means of integers, which NCCL does not support, only outside a group.
  NcclAndPeerMemory,
  /// As NcclAndPeerMemory, but without 16-bit integers and means of integers.
  Nccl,
  /// As NcclAndPeerMemory, with the setting collectives.reproducible: floats only where they are reduced in the order
  /// of ranks, which is not in a group that has other operations, too.
  PeerMemoryInOrder,
  /// As Nccl, with the setting collectives.reproducible: without floats.
  NcclOfIntegers,
};

/// The settings of a run.
struct Options {
  static constexpr std::uint32_t max_clients = 1024;

  std::vector<DeviceId> devices;                          ///< of this process
  std::optional<SharedRun> shared;                        ///< Empty: the clients choose the rounds of collectives.
  std::optional<std::chrono::duration<double>> duration;  ///< The run ends after this time,
  std::optional<std::uint64_t> operations;                ///< or when all clients together have done so many.
  std::uint32_t clients = 8;
  std::uint64_t seed = 0;
  Mix mix;
  Payload payload;
  FaultRates faults;
  Reductions reductions = Reductions::All;
  bool scarce_pinned_memory = false;  ///< Copies may find no page-locked memory.
  /// A client that completes no operation for this time is reported as stuck.
  std::chrono::seconds patience{60};
  /// Called once at the end of the work, while the devices are still open and idle.
  std::function<void()> on_idle;
  /// Called at each poll of the monitor, on the thread of the run.
  std::function<void()> on_poll;
  /// Called once, on the thread of the run, when there is a violation, while the devices are still open.
  std::function<void()> on_violation;

  /// The devices that have collectives together.
  [[nodiscard]] const std::vector<DeviceId>& ranks() const noexcept { return shared ? shared->devices : devices; }
};

}  // namespace cox::stress
