#include <coxswain/collectives/world/silence.hpp>

#include <coxswain/runtime/error/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cox::detail::world {
namespace {

constexpr std::chrono::seconds report_after{5};

}  // namespace

bool Silence::is_too_long(const std::string& name, Time heard, bool is_awaited, std::chrono::nanoseconds limit,
                          Time now) {
  const bool is_long = now - heard >= report_after;
  if (is_long && !is_reported_)
    cox::log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] {
      return fmt::format("{} has been silent for {:.1f} s", name, std::chrono::duration<double>(now - heard).count());
    });
  is_reported_ = is_long;
  awaited_since_ = is_awaited ? std::min(awaited_since_, now) : Time::max();
  return is_awaited && now - std::max(heard, awaited_since_) >= limit;
}

}  // namespace cox::detail::world
