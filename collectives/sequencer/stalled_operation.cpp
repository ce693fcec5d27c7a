#include <coxswain/collectives/sequencer/stalled_operation.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace cox::detail {

std::vector<StalledOperation::Missing> missing_ranks(const CommunicatorSequence& communicator, std::uint64_t sequence) {
  std::vector<StalledOperation::Missing> missing;
  for (std::size_t rank = 0; rank < communicator.devices().world_size(); ++rank)
    if (communicator.is_own(rank) && communicator.next(rank) <= sequence)
      missing.push_back({communicator.own_name(rank), communicator.last_of(rank)});
  return missing;
}

StalledOperation find_stalled_operation(const OpenCommunicators& communicators,
                                        const CommunicatorSequence& communicator, std::chrono::milliseconds waited) {
  const CommunicatorSequence* among = &communicator;
  StalledOperation stall{among->describe(among->oldest_sequence()), {}};
  const bool held = among->complete(*among->oldest());
  if (held && among->is_asked(among->oldest_sequence())) {
    stall.text +=
        fmt::format(", was submitted by all ranks of this process, but not by others within {} ms", waited.count());
    return stall;
  }
  stall.text += held ? ", was submitted by all ranks but held back for " : ", was not submitted by all ranks within ";
  stall.text += fmt::format("{} ms", waited.count());
  // Terminates: wait cycles are refused.
  while (among->oldest() != nullptr && among->complete(*among->oldest())) {
    const auto hold = communicators.hold(*among->oldest());
    if (!hold) break;
    among = communicators.find(hold->dependency.communicator);
    stall.text += fmt::format("; its rank on {} waits for {}", hold->submission->device.to_string(),
                              among->describe(hold->dependency.sequence));
    if (among->oldest_sequence() < hold->dependency.sequence)
      stall.text += ", which comes after " + among->describe(among->oldest_sequence());
  }
  stall.missing = missing_ranks(*among, among->oldest_sequence());
  return stall;
}

}  // namespace cox::detail
