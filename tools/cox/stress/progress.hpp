#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace cox::stress {

/// The progress of a run.
struct Progress {
  double seconds = 0;            ///< since it began
  std::uint64_t operations = 0;  ///< completed so far
  double rate = 0;               ///< operations a second since the last report
  std::size_t depth = 0;         ///< closures queued on all devices
  std::uint64_t rss_bytes = 0;
  std::uint64_t faults = 0;  ///< injected so far
};

/// Called once a second, on the thread that runs the engine.
using ProgressSink = std::function<void(const Progress&)>;

/// One line without a newline.
[[nodiscard]] std::string to_string(const Progress& progress);

}  // namespace cox::stress
