#pragma once

#include <coxswain/runtime/trace/trace_event.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cox::trace {

/// The events recorded from trace::start() to trace::stop(). A plain value.
struct Recording {
  std::vector<Event> events;                     ///< Sorted by `begin`; all have names; times in ns since the start.
  std::map<std::uint32_t, std::string> threads;  ///< Known thread names, by the system's thread number.
  std::uint64_t dropped = 0;                     ///< Events that were not kept for lack of room.
  std::uint64_t started = 0;  ///< trace::start() on std::chrono::steady_clock, in ns; 0: nothing was recorded
};

}  // namespace cox::trace
