#include <coxswain/tools/cox/stress/ticket_book.hpp>

namespace cox::stress {
namespace {

// Polls the published progress until it changes, a limited number of times.
std::uint64_t next_progress(const std::atomic<std::uint64_t>& progress) {
  constexpr int looks = 200;
  const std::uint64_t first = progress.load(std::memory_order_acquire);  // pairs with the release in accepted()
  for (int i = 0; i < looks; ++i) {
    const std::uint64_t now = progress.load(std::memory_order_acquire);
    if (now != first) return now;
  }
  return first;
}

}  // namespace

Ticket TicketBook::write(std::size_t device, Sequence sequence, Fate fate, std::uint8_t stream) const {
  return {.sequence = sequence,
          .after = last_[device],
          .foreign = {},
          .client = static_cast<std::uint16_t>(client_),
          .foreign_client = static_cast<std::uint16_t>(client_),
          .device = static_cast<std::uint8_t>(device),
          .stream = stream,
          .fate = fate};
}

Ticket TicketBook::write(std::size_t device, Sequence sequence, Fate fate, std::uint8_t stream, Random& random) {
  constexpr std::uint64_t one_in = 8;
  Ticket ticket = write(device, sequence, fate, stream);
  const auto other = static_cast<std::uint32_t>(random.below(truth_.clients()));
  const bool closely = random.below(one_in) == 0;
  if (other == client_) return ticket;
  const std::atomic<std::uint64_t>& progress = truth_.lane(device, other).accepted;
  ticket.foreign_client = static_cast<std::uint16_t>(other);
  // Acquire pairs with the release in accepted(): the other client's call returned before ours begins.
  ticket.foreign = {closely ? next_progress(progress) : progress.load(std::memory_order_acquire)};
  return ticket;
}

void TicketBook::accepted(const Ticket& ticket) {
  last_[ticket.device] = ticket.sequence;
  // Release pairs with the acquire of the clients that write this into their tickets.
  truth_.lane(ticket.device, client_).accepted.store(ticket.sequence.value, std::memory_order_release);
}

}  // namespace cox::stress
