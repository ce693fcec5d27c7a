#pragma once

#include <coxswain/runtime/trace/trace.hpp>

#include <filesystem>

namespace cox::trace {

/// Starts a trace that is written to `path` when the process exits, after the devices that were opened after this call
/// have been shut down; in a world of several processes to a file of each process (file_of_process). It is not written
/// in a forked child, nor after _Exit or a signal. A failure to write is logged, or printed to stderr where errors are
/// not logged. If this is called several times, the last call applies. Throws Error if the file cannot be written, or
/// if NVTX is requested but not available.
void start_until_exit(const Options& options, const std::filesystem::path& path);

}  // namespace cox::trace
