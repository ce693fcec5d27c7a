#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace cox::perf {

/// What a program of nccl-tests (github.com/NVIDIA/nccl-tests) says of one size.
struct NcclTestsRow {
  double microseconds = 0;
  double algbw = 0;  ///< GB/s
  double busbw = 0;  ///< GB/s
  double wrong = 0;  ///< elements; NaN if it has not looked
};

/// The row of that size in what the program has printed; nothing if there is none.
[[nodiscard]] std::optional<NcclTestsRow> find_nccl_tests_row(const std::string& output, std::size_t bytes,
                                                              bool in_place);

/// Runs `folder`/all_reduce_perf over that many GPUs, a thread for each. Blocks until it has ended. Throws
/// std::runtime_error if it cannot be run or prints no such row.
[[nodiscard]] NcclTestsRow run_nccl_tests(const std::string& folder, std::size_t ranks, std::size_t bytes,
                                          bool in_place);

}  // namespace cox::perf
