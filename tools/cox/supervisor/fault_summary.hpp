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

/// The contents of the report; empty if the file does not exist or has more than `most` bytes.
[[nodiscard]] std::string text_of_report(const std::filesystem::path& report, std::size_t most);

}  // namespace cox::tools
