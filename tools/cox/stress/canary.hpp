#pragma once

#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstdint>

namespace cox::stress {

/// Rides in a closure and sees what becomes of it: that it runs once or is destroyed unrun, as its ticket says, and
/// that it is destroyed once (L2). Move-only; 40 bytes, as much as a closure may hold in the queue's own cache line.
class Canary {
 public:
  /// `truth` outlives the canary.
  Canary(Truth& truth, const Ticket& ticket) noexcept : truth_(&truth), ticket_(ticket) {}
  Canary(Canary&& other) noexcept;
  Canary& operator=(Canary&&) = delete;
  ~Canary();

  /// The closure runs.
  void run();

  [[nodiscard]] const Ticket& ticket() const noexcept { return ticket_; }

 private:
  Truth* truth_;  // null: moved from
  Ticket ticket_;
};
static_assert(sizeof(Canary) == 40);

}  // namespace cox::stress
