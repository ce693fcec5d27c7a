#pragma once

#include <coxswain/runtime/trace/recording.hpp>

#include <filesystem>
#include <ostream>

namespace cox::trace {

/// Writes `recording` in the trace event format of Chrome, which Perfetto (ui.perfetto.dev) opens. Each device is a
/// process, with its device threads, streams and communicators as threads; all client threads together are one process.
/// Each event is a slice. An arrow leads from where its work was handed over to where the work ran. A counter shows how
/// many tasks were queued over time.
void write_chrome_trace(std::ostream& out, const Recording& recording);

/// Writes `recording` to a file in the same format, replacing the file. Throws Error if it cannot be written.
void write_chrome_trace(const std::filesystem::path& path, const Recording& recording);

}  // namespace cox::trace
