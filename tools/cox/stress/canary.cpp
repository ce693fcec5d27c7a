#include <coxswain/tools/cox/stress/canary.hpp>

#include <limits>
#include <utility>

namespace cox::stress {

Canary::Canary(Canary&& other) noexcept : truth_(std::exchange(other.truth_, nullptr)), ticket_(other.ticket_) {}

Canary::~Canary() {
  if (truth_ == nullptr) return;
  Truth::Device& device = truth_->device(ticket_.device);
  device.destroyed.fetch_add(1, std::memory_order_relaxed);
  if (ticket_.runs > 0) {
    device.lanes[ticket_.client].destroyed.store(ticket_.sequence.value, std::memory_order_relaxed);
  } else if (ticket_.fate != Fate::Dropped) {
    truth_->violated(Law::Conservation, ticket_, "the accepted closure runs once",
                     "it was destroyed without having run");
  }
}

void Canary::run() {
  if (ticket_.runs < std::numeric_limits<std::uint8_t>::max()) ++ticket_.runs;
  if (ticket_.runs > 1) {
    truth_->violated(Law::Conservation, ticket_, "the closure runs once",
                     "it ran " + std::to_string(ticket_.runs) + " times");
  } else if (ticket_.fate == Fate::Dropped) {
    truth_->violated(Law::Conservation, ticket_, "the closure was cancelled, expired or refused and never runs",
                     "it ran");
  }
}

}  // namespace cox::stress
