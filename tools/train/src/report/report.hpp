#pragma once

#include <engine/options.hpp>
#include <engine/training.hpp>

#include <filesystem>
#include <string>

namespace train {

/// Whether the plotting library is installed. `why_not`: what to install.
[[nodiscard]] bool can_report(std::string& why_not);

/// Writes one page that needs no other file and no network: the losses, the step times, and the time line of a step. It
/// contains dygraphs (MIT licence), which is read from the Debian package libjs-dygraphs. Throws std::runtime_error if
/// that is not installed, or if the file cannot be written.
void write_report(const std::filesystem::path& file, const Options& options, const Outcome& outcome);

}  // namespace train
