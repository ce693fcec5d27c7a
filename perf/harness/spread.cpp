#include <coxswain/perf/harness/spread.hpp>

#include <algorithm>
#include <cstddef>

namespace cox::perf {

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  const auto [min, max] = std::minmax_element(samples.begin(), samples.end());
  Spread spread{.median = 0, .min = *min, .max = *max};
  spread.median = quantile(samples, 0.5);
  return spread;
}

double quantile(std::vector<double>& samples, double q) {
  const auto rank = static_cast<std::size_t>(q * static_cast<double>(samples.size() - 1) + 0.5);
  const auto nth = samples.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(samples.begin(), nth, samples.end());
  return *nth;
}

}  // namespace cox::perf
