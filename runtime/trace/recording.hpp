#pragma once

#include <coxswain/runtime/trace/trace_event.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cox::trace {

/// What was recorded from trace::start() to trace::stop(). A plain value.
struct Recording {
  std::vector<Event> events;                     ///< By their beginnings; all have names; times in ns since the start.
  std::map<std::uint32_t, std::string> threads;  ///< Names of threads, where they are known, by the system's number.
  std::uint64_t dropped = 0;                     ///< Events that there was no room for.
};

}  // namespace cox::trace
