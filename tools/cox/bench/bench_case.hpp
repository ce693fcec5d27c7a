#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace cox::bench {

/// Something to be measured.
struct BenchCase {
  std::string where;  ///< "cuda:0", "cuda:0 cuda:1"
  std::string what;
  /// Does it, once or in a burst, and returns the microseconds that one took.
  std::function<double()> sample;
  std::size_t bytes = 0;  ///< that one moves; 0: it is not about that
  double bus_factor = 0;  ///< of collectives: bytes over each rank's link for one byte, as nccl-tests count; else 0
};

}  // namespace cox::bench
