#pragma once

#include <coxswain/runtime/trace/recording.hpp>

#include <filesystem>
#include <ostream>

namespace cox::trace {

/// Writes `recording` in Chrome's trace event format, which Perfetto (ui.perfetto.dev) opens: a process for each device
/// with its threads, streams and communicators as threads, one for all client threads, a slice for each event, an
/// arrow from where its work was handed over to where it ran, and how many tasks were queued over time.
void write_chrome_trace(std::ostream& out, const Recording& recording);

/// The same into a file, which is replaced. Throws Error if it cannot be written.
void write_chrome_trace(const std::filesystem::path& path, const Recording& recording);

}  // namespace cox::trace
