#pragma once

#include <cstdint>
#include <vector>

namespace cox::perf {

/// Summary of the samples of one measurement.
struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

/// Median, smallest and largest of `samples`; all zero if there are none.
Spread spread_of(std::vector<double> samples);

/// The value below which the share `q` (0 to 1) of `samples` lies. Reorders `samples`; they must not be empty.
double quantile(std::vector<double>& samples, double q);

}  // namespace cox::perf
