#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace cox::bench {

/// One operation to measure.
struct BenchCase {
  std::string where;  ///< "cuda:0", "cuda:0 cuda:1"
  std::string what;
  /// Runs the operation once or in a burst, and returns the microseconds per operation.
  std::function<double()> sample;
  std::size_t bytes = 0;  ///< bytes that one operation moves; 0: the case has no transfer rate
  /// For collectives, the bytes over each rank's link for each byte of the operation, as nccl-tests count them; else 0.
  double bus_factor = 0;
};

}  // namespace cox::bench
