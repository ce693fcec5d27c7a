#pragma once

#include <coxswain/runtime/trace/recording.hpp>

#include <chrono>
#include <string>

namespace train {

/// A drawing (HTML with SVG) of what the streams of each device did in a step, with its key: one row for each stream,
/// time from left to right. `recording` was started when the step began; `step`: how long the step took. Streams that
/// only marked points are left out. Empty if nothing was recorded, as on GPUs: the library's trace has the streams of
/// host devices alone.
[[nodiscard]] std::string time_line(const cox::trace::Recording& recording, std::chrono::duration<double> step);

}  // namespace train
