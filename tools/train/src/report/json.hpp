#pragma once

#include <engine/options.hpp>
#include <engine/training.hpp>

#include <filesystem>

namespace train {

/// Writes what was measured: for each step since the last failure its loss, duration, tokens for each second and
/// communication that was not hidden (null where it was not measured), and the memory of the first device in bytes.
/// Throws std::runtime_error if the file cannot be written.
void write_json(const std::filesystem::path& file, const Options& options, const Outcome& outcome);

}  // namespace train
