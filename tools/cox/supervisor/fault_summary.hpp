#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace cox::tools {

/// A one-line summary of the report of a GPU fault: "CUDA_ERROR_ILLEGAL_ADDRESS (700) from event_query, first suspect
/// launch of scale on cuda:0, stream 3 at train.cpp:31". Returns nullopt if the file does not exist or is not such a
/// report.
[[nodiscard]] std::optional<std::string> fault_summary(const std::filesystem::path& report);

/// Whether the report is of a GPU whose memory cannot be trusted any more: an uncorrectable error of the memory. False
/// if the file does not exist or is not such a report.
[[nodiscard]] bool memory_is_lost(const std::filesystem::path& report);

/// The contents of the report; empty if the file does not exist. If it has more than `most` bytes: a report with as
/// many suspects as fit, and without its text; empty if it is no report.
[[nodiscard]] std::string text_of_report(const std::filesystem::path& report, std::size_t most);

/// Writes the file of a report. Throws std::system_error; then there is no file.
void write_report(const std::filesystem::path& report, const std::string& text);

}  // namespace cox::tools
