#pragma once

#include <coxswain/runtime/trace/recording.hpp>

#include <string>

namespace train {

/// A drawing (SVG) of what the streams and communicators of each device did while `recording` was made: one row for
/// each, time from left to right. Empty if nothing was recorded.
[[nodiscard]] std::string time_line(const cox::trace::Recording& recording);

}  // namespace train
