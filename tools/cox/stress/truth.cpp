#include <coxswain/tools/cox/stress/truth.hpp>

#include <utility>

namespace cox::stress {

Truth::Truth(const std::vector<DeviceId>& devices, std::uint32_t clients)
    : devices_(devices.size()), streams_(clients) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    devices_[i].id = devices[i];
    devices_[i].lanes = std::vector<Lane>(clients);
  }
}

void Truth::violated(Law law, const Ticket& ticket, std::string expected, std::string got) {
  violations_.add({.law = law,
                   .expected = std::move(expected),
                   .got = std::move(got),
                   .client = ticket.client,
                   .device = devices_[ticket.device].id,
                   .stream = streams_[ticket.client][ticket.stream].value,
                   .sequence = ticket.sequence});
}

}  // namespace cox::stress
