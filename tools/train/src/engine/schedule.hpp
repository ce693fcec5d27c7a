#pragma once

#include <engine/options.hpp>

#include <cmath>
#include <cstddef>

namespace train {

/// The learning rate of step `step`, counted from 1: a linear warm-up, then a half cosine down to last_rate.
[[nodiscard]] inline float learning_rate(const OptimizerOptions& options, std::size_t step, std::size_t steps) {
  if (step <= options.warm_up) return options.rate * static_cast<float>(step) / static_cast<float>(options.warm_up);
  const double done = static_cast<double>(step - options.warm_up) / static_cast<double>(steps - options.warm_up);
  const double share = 0.5 * (1.0 + std::cos(3.141592653589793 * done));
  return options.last_rate + static_cast<float>(share) * (options.rate - options.last_rate);
}

}  // namespace train
