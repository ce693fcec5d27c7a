#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cox::tools {

/// As the name of an output file: standard output.
inline constexpr std::string_view standard_output = "-";

/// Throws ArgumentError, which names `option`, if the file cannot be written. Changes nothing.
void require_writable(std::string_view option, const std::string& path);

/// Throws ArgumentError if two of the options (name, path; an empty path: not given) name the same file.
void require_different_files(const std::vector<std::pair<std::string_view, std::string>>& options);

/// Replaces the content of the file: writes a temporary file next to it and renames that, so that the old content stays
/// if writing fails or the process ends. Devices, pipes and files in folders that admit no new file are written in
/// place. Returns why it failed.
[[nodiscard]] std::error_code write_file(const std::string& path, std::string_view text);

/// Whether there was no error; else says on `err`, in the name of `command`, which file of which option is missing.
[[nodiscard]] bool is_written(const std::error_code& error, std::string_view command, std::string_view option,
                              const std::string& path, std::ostream& err);

/// As write_file; `write` writes to the path that it is given, and returns why that failed.
[[nodiscard]] std::error_code replace_file(const std::string& path,
                                           const std::function<std::error_code(const std::string&)>& write);

}  // namespace cox::tools
