#pragma once

#include <coxswain/tools/cox/stress/sequence.hpp>

#include <cstddef>
#include <cstdint>

namespace cox::stress {

/// The expected outcome of a closure.
enum class Fate : std::uint8_t {
  Runs,     ///< Runs once.
  Throws,   ///< Runs once and throws an InjectedFault.
  Dropped,  ///< Is destroyed without having run: cancelled, expired or refused.
};

/// What a client knows about a closure when it submits it.
struct Ticket {
  Sequence sequence;
  Sequence after;  ///< The client's last closure on that device that must run: it must have run before this one.
  /// A closure of `foreign_client` whose call had returned before this one was made: must have run, too.
  Sequence foreign;
  std::uint16_t client = 0;
  std::uint16_t foreign_client = 0;
  std::uint8_t device = 0;  ///< Index.
  std::uint8_t stream = 0;  ///< Which of the client's streams.
  Fate fate = Fate::Runs;
  std::uint8_t runs = 0;  ///< So far; counted by the Canary.
};
static_assert(sizeof(Ticket) == 32);

}  // namespace cox::stress
