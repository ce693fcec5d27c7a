#include <coxswain/tools/cox/stress/mix.hpp>

#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace cox::stress {
namespace {

std::size_t index_of(std::string_view option, std::string_view name) {
  const auto* const found = std::find(operation_names.begin(), operation_names.end(), name);
  if (found != operation_names.end()) return static_cast<std::size_t>(found - operation_names.begin());
  throw tools::ArgumentError(std::string(option) + ": '" + std::string(name) + "' is none of " +
                             tools::one_of({operation_names.begin(), operation_names.end()}));
}

}  // namespace

Mix::Mix(const Weights& weights) noexcept
    : weights_(weights), total_(std::accumulate(weights.begin(), weights.end(), std::uint64_t{0})) {}

Mix Mix::parse(std::string_view option, std::string_view text) {
  Weights weights{};
  for (const tools::Setting& setting : tools::parse_settings(option, text)) {
    const std::size_t index = index_of(option, setting.name);
    weights[index] = static_cast<std::uint32_t>(tools::parse_count(option, setting.value, 0, largest_weight));
  }
  const Mix mix(weights);
  if (mix.total_ == 0)
    throw tools::ArgumentError(std::string(option) + ": all weights are 0, so there is nothing to do");
  return mix;
}

bool Mix::has_collectives() const noexcept { return without_collectives().total_ != total_; }

Mix Mix::without_collectives() const noexcept {
  Weights weights = weights_;
  for (std::size_t i = 0; i < operation_count; ++i)
    if (is_collective(static_cast<Operation>(i))) weights[i] = 0;
  return Mix(weights);
}

Mix Mix::only_collectives() const noexcept {
  Weights weights = weights_;
  for (std::size_t i = 0; i < operation_count; ++i)
    if (!is_collective(static_cast<Operation>(i))) weights[i] = 0;
  return Mix(weights);
}

Operation Mix::pick(Random& random) const noexcept {
  std::uint64_t left = random.below(total_);
  std::size_t index = 0;
  while (left >= weights_[index]) left -= weights_[index++];
  return static_cast<Operation>(index);
}

}  // namespace cox::stress
