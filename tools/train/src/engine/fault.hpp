#pragma once

#include <engine/options.hpp>

#include <atomic>
#include <cstddef>

namespace train {

/// A failure that the command line asks for. It happens once in the process, on the last rank, in the middle of the
/// backward pass, or before the replay of a captured step.
class Fault {
 public:
  Fault(FaultKind kind, std::size_t step) : kind_(kind), step_(step) {}

  /// The fault of this rank in this step. FaultKind::None in every later call.
  [[nodiscard]] FaultKind take(std::size_t step, bool last_rank) {
    if (kind_ == FaultKind::None || step != step_ || !last_rank || taken_.exchange(true)) return FaultKind::None;
    return kind_;
  }

 private:
  const FaultKind kind_;
  const std::size_t step_;
  std::atomic<bool> taken_{false};
};

/// Whether a rank has failed. For a rank that does not come: it leaves when the others have noticed.
class FailureSignal {
 public:
  void raise() {
    failed_ = true;
    failed_.notify_all();
  }
  /// Blocks until a rank has failed.
  void wait() const { failed_.wait(false); }

 private:
  std::atomic<bool> failed_{false};
};

}  // namespace train
