#pragma once

#include <coxswain/tools/cox/stress/canary.hpp>
#include <coxswain/tools/cox/stress/random.hpp>
#include <coxswain/tools/cox/stress/tally.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cox::stress {

/// One client's part of the truth: writes its tickets, publishes what it has submitted, and keeps the tally. Used by
/// that client's thread only.
class TicketBook {
 public:
  TicketBook(Truth& truth, std::uint32_t client)
      : truth_(truth), client_(client), last_(truth.devices()), tallies_(truth.devices()) {}

  /// A ticket for the next call. Takes the progress that another client, chosen by `random`, has published; now and
  /// then waits a moment for it to publish more, so that the two calls follow each other closely.
  [[nodiscard]] Ticket write(std::size_t device, Sequence sequence, Fate fate, std::uint8_t stream, Random& random);
  /// A ticket for the next call, without the progress of another client.
  [[nodiscard]] Ticket write(std::size_t device, Sequence sequence, Fate fate, std::uint8_t stream) const;

  /// The call with that ticket has returned, so the closure has run or must run: other clients may now rely on it.
  void accepted(const Ticket& ticket);

  /// Makes the canary of the closure with that ticket, and counts it.
  [[nodiscard]] Canary canary(const Ticket& ticket) noexcept {
    ++tallies_[ticket.device].canaries;
    return Canary(truth_, ticket);
  }

  [[nodiscard]] Tally& tally(std::size_t device) noexcept { return tallies_[device]; }
  [[nodiscard]] const std::vector<Tally>& tallies() const noexcept { return tallies_; }
  [[nodiscard]] Truth& truth() noexcept { return truth_; }
  [[nodiscard]] std::uint32_t client() const noexcept { return client_; }

 private:
  Truth& truth_;
  std::uint32_t client_;
  std::vector<Sequence> last_;  // by device: the latest that must run
  std::vector<Tally> tallies_;  // by device
};

}  // namespace cox::stress
