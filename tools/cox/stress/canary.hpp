#pragma once

#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstdint>

namespace cox::stress {

/// A capture that checks the lifetime of its closure: that the closure runs once or is destroyed without having run, as
/// its ticket says, and that it is destroyed once (L2). Move-only; 40 bytes, the most that a closure may hold to fit
/// the queue's own cache line.
class Canary {
 public:
  /// `truth` outlives the canary.
  Canary(Truth& truth, const Ticket& ticket) noexcept : truth_(&truth), ticket_(ticket) {}
  Canary(Canary&& other) noexcept;
  Canary& operator=(Canary&&) = delete;
  ~Canary();

  /// Call when the closure runs.
  void run();

  [[nodiscard]] const Ticket& ticket() const noexcept { return ticket_; }

 private:
  Truth* truth_;  // null: moved from
  Ticket ticket_;
};
static_assert(sizeof(Canary) == 40);

}  // namespace cox::stress
