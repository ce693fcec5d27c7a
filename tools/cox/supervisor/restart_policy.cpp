#include <coxswain/tools/cox/supervisor/restart_policy.hpp>

#include <coxswain/runtime/config/duration.hpp>

#include <algorithm>

namespace cox::tools {

std::string RestartLimits::to_string() const { return std::to_string(restarts) + " within " + format_duration(within); }

std::optional<std::chrono::nanoseconds> RestartPolicy::restart(Clock::time_point now, std::chrono::nanoseconds ran) {
  while (!recent_.empty() && now - recent_.front() >= limits_.within) recent_.pop_front();
  if (recent_.size() >= limits_.restarts) return std::nullopt;
  recent_.push_back(now);
  if (ran >= limits_.backoff_max) delay_ = limits_.backoff;
  const std::chrono::nanoseconds delay = delay_;
  delay_ = delay_ > limits_.backoff_max / 2 ? limits_.backoff_max : delay_ * 2;
  return delay;
}

}  // namespace cox::tools
