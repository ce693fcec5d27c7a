#include <coxswain/runtime/telemetry/metric_set.hpp>

#include <stdexcept>

namespace cox::metrics {

void MetricSet::add(Family::Kind kind, std::string_view name, std::string_view help, Family::Value value) {
  auto found = families_.find(name);
  if (found == families_.end())
    found = families_.try_emplace(std::string(name), Family{kind, std::string(help), {}}).first;
  if (found->second.kind != kind)
    throw std::logic_error("the metric " + std::string(name) + " was added as two different kinds");
  found->second.values.push_back(std::move(value));
}

}  // namespace cox::metrics
