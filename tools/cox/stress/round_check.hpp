#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/tools/cox/stress/round.hpp>
#include <coxswain/tools/cox/stress/round_book.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstdint>
#include <exception>
#include <vector>

namespace cox::stress {

/// What has become of one rank's call.
struct RankOutcome {
  std::vector<Bytes> values;           ///< Of the results that were read.
  std::exception_ptr error;            ///< Then there are none.
  std::vector<Bytes> dependent;        ///< A copy of the first result, which another stream has made, if one was made.
  std::exception_ptr dependent_error;  ///< Then there is none.
};

/// Compares the outcomes, by rank, with what the round must give: the values, recomputed, on every rank; or the errors
/// that its fault explains. Reports what differs. Returns how many errors were explained.
std::uint64_t check_round(Truth& truth, RoundBook& book, Round& round, const std::vector<RankOutcome>& outcomes);

/// What a rank writes over its source after its call.
[[nodiscard]] std::vector<std::byte> overwriting(const RoundPart& part, std::size_t ranks, std::size_t rank);

}  // namespace cox::stress
