#pragma once

#include <data/random.hpp>
#include <engine/options.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace train {

/// Failures that the command line asks for: one in the process, on the last rank; or, for FaultKind::Random, one in
/// every `step` steps on average, of a random kind on a random rank. They happen in the middle of the backward pass, or
/// before the replay of a captured step; FaultKind::Update before the commit of kept memory. FaultKind::Kill and the
/// random faults of a GPU belong to no step: see kill_at_random() and RandomGpuFault.
class Fault {
 public:
  /// `salt`: selects the random faults.
  Fault(FaultKind kind, std::size_t step, std::uint64_t salt) : kind_(kind), step_(step), salt_(salt) {}

  /// The fault of this rank in this step. Every rank asks in every step.
  [[nodiscard]] FaultKind take(std::size_t step, std::size_t rank, std::size_t ranks) {
    if (kind_ == FaultKind::None || kind_ == FaultKind::Kill || is_random_gpu_fault(kind_)) return FaultKind::None;
    if (kind_ == FaultKind::Random) return random(step, rank, ranks);
    if (step != step_ || rank + 1 != ranks || taken_.exchange(true)) return FaultKind::None;
    return kind_;
  }
  /// Selects other random faults, so that a step that is repeated can succeed. No rank may be running.
  void next_attempt() { ++attempt_; }

 private:
  [[nodiscard]] FaultKind random(std::size_t step, std::size_t rank, std::size_t ranks) const {
    constexpr std::array kinds{FaultKind::Kernel,   FaultKind::Memory,  FaultKind::Thread,
                               FaultKind::Shutdown, FaultKind::Missing, FaultKind::Crash};
    const std::uint64_t number = mixed(mixed(salt_ + attempt_) + step);
    if (number % step_ != 0 || mixed(number) % ranks != rank) return FaultKind::None;
    return kinds[mixed(number + 1) % kinds.size()];
  }

  const FaultKind kind_;
  const std::size_t step_;
  const std::uint64_t salt_;
  std::uint64_t attempt_ = 0;
  std::atomic<bool> taken_{false};
};

/// A random time, exponentially distributed, at least one nanosecond.
[[nodiscard]] std::chrono::nanoseconds random_time(std::chrono::milliseconds mean);

/// Kills this process after a random time. Throws std::system_error.
void kill_at_random(std::chrono::milliseconds mean);

}  // namespace train
