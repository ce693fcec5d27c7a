#pragma once

#include <coxswain/tools/cox/stress/canary.hpp>
#include <coxswain/tools/cox/stress/order_auditor.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cox::stress {

/// Captured data next to the canary, of a given size and alignment. Its content follows from the sequence, so that
/// whole() detects corruption.
template <std::size_t words, std::size_t alignment>
class alignas(alignment) Cargo {
 public:
  explicit Cargo(Sequence sequence) noexcept {
    Random random(sequence.value);
    for (std::uint64_t& word : words_) word = random.next();
  }
  [[nodiscard]] bool whole(Sequence sequence) const noexcept {
    Random random(sequence.value);
    for (const std::uint64_t word : words_)
      if (word != random.next()) return false;
    return reinterpret_cast<std::uintptr_t>(this) % alignment == 0;
  }

 private:
  std::array<std::uint64_t, words> words_;
};

/// A fire-and-forget closure that fits the queue's own cache line.
struct SmallClosure {
  Canary canary;
  void operator()(OrderAuditor& auditor) { auditor.run_unattended(canary); }
};

/// A fire-and-forget closure with cargo.
template <std::size_t words, std::size_t alignment = alignof(std::uint64_t)>
struct LadenClosure {
  LadenClosure(Truth& truth, Canary passenger)
      : canary(std::move(passenger)), cargo(canary.ticket().sequence), owner(&truth) {}

  Canary canary;
  Cargo<words, alignment> cargo;
  Truth* owner;

  void operator()(OrderAuditor& auditor) {
    const Ticket& ticket = canary.ticket();
    if (!cargo.whole(ticket.sequence))
      owner->violated(Law::Lifetime, ticket, "the closure's captures arrive whole and aligned", "they did not");
    auditor.run_unattended(canary);
  }
};

}  // namespace cox::stress
