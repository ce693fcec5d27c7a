#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/tools/cox/stress/round.hpp>
#include <coxswain/tools/cox/stress/round_book.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstdint>
#include <exception>
#include <vector>

namespace cox::stress {

/// The outcome of one rank's call.
struct RankOutcome {
  std::vector<Bytes> values;           ///< Of the results that were read.
  std::exception_ptr error;            ///< If set, there are no values.
  std::vector<Bytes> dependent;        ///< A copy of the first result by another stream, if one was made.
  std::exception_ptr dependent_error;  ///< If set, there is no copy.
};

/// Compares the outcomes, by rank, with the expected ones: on every rank the values that the CPU recomputes, or the
/// errors that the fault of the round explains. Reports differences. Returns how many errors were explained.
std::uint64_t check_round(Truth& truth, RoundBook& book, Round& round, const std::vector<RankOutcome>& outcomes);

/// The data that a rank writes over its source after its call.
[[nodiscard]] std::vector<std::byte> overwriting(const RoundPart& part, std::size_t ranks, std::size_t rank);

}  // namespace cox::stress
