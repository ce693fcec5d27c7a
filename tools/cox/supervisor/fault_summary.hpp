#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace cox::tools {

/// The report of a GPU fault in few words: "CUDA_ERROR_ILLEGAL_ADDRESS (700) from event_query, first suspect launch of
/// scale on cuda:0, stream 3 at train.cpp:31". Nothing if the file is not there or no such report.
[[nodiscard]] std::optional<std::string> fault_summary(const std::filesystem::path& report);

}  // namespace cox::tools
