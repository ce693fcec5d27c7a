#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace cox::perf {

/// The result of a program of nccl-tests (github.com/NVIDIA/nccl-tests) for one size.
struct NcclTestsRow {
  double microseconds = 0;
  double algbw = 0;  ///< GB/s
  double busbw = 0;  ///< GB/s
  double wrong = 0;  ///< number of wrong elements; NaN if the program has not checked them
};

/// Finds the row for `bytes` in the output of the program; nullopt if there is none.
[[nodiscard]] std::optional<NcclTestsRow> find_nccl_tests_row(const std::string& output, std::size_t bytes,
                                                              bool in_place);

/// Runs `folder`/all_reduce_perf on `ranks` GPUs, with a thread for each. Blocks until the program has ended. Throws
/// std::runtime_error if the program cannot be run or prints no row for `bytes`.
[[nodiscard]] NcclTestsRow run_nccl_tests(const std::string& folder, std::size_t ranks, std::size_t bytes,
                                          bool in_place);

}  // namespace cox::perf
