#pragma once

#include <coxswain/tools/cox/stress/canary.hpp>
#include <coxswain/tools/cox/stress/order_auditor.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <cstdint>

namespace cox::stress {

/// A closure whose caller waits for it, and the value that it returns.
struct Question {
  Canary canary;

  Question(TicketBook& book, const Ticket& ticket) : canary(book.canary(ticket)) {}

  [[nodiscard]] static std::uint64_t answer(const Ticket& ticket) noexcept { return ~ticket.sequence.value; }

  std::uint64_t operator()(OrderAuditor& auditor) {
    auditor.run(canary);
    return answer(canary.ticket());
  }
};

/// The blocking call with that ticket has returned: checks that its closure has been destroyed (L6) and that the
/// caller's StreamId is unchanged (L9).
inline void check_after_call(TicketBook& book, const Ticket& ticket) {
  const std::uint64_t destroyed =
      book.truth().lane(ticket.device, book.client()).destroyed.load(std::memory_order_relaxed);
  if (destroyed != ticket.sequence.value)
    book.truth().violated(Law::Lifetime, ticket, "the closure is destroyed before its caller wakes",
                          "it is still there");
  if (StreamId::current() != book.truth().streams(book.client())[0])
    book.truth().violated(Law::Identity, ticket, "the call does not change the caller's StreamId", "it changed");
}

}  // namespace cox::stress
