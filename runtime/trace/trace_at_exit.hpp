#pragma once

#include <coxswain/runtime/trace/trace.hpp>

#include <filesystem>

namespace cox::trace {

/// Starts a trace that is written to `path` when the process exits, after the devices that were opened after this call
/// have been shut down. Not in a forked child, nor after _Exit or a signal; a failure then is logged. Of several calls
/// the last counts. Throws Error if the file cannot be written, or NVTX is asked for and not available.
void start_until_exit(const Options& options, const std::filesystem::path& path);

}  // namespace cox::trace
