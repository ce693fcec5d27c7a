#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cox::tools {

/// The output file name that stands for standard output.
inline constexpr std::string_view standard_output = "-";

/// Throws ArgumentError, which names `option`, if the file cannot be written. Does not change the file.
void require_writable(std::string_view option, const std::string& path);

/// Throws ArgumentError if two of the options have the same file. Each option is a pair of its name and its path; an
/// empty path means that the option was not given.
void require_different_files(const std::vector<std::pair<std::string_view, std::string>>& options);

/// Replaces the content of the file: writes a temporary file in the same folder and renames it, so that the old content
/// stays if writing fails or the process ends. Devices, pipes, and files in folders where no file can be created are
/// written in place. Returns the error, if any.
[[nodiscard]] std::error_code write_file(const std::string& path, std::string_view text);

/// Returns true if `error` is empty. Otherwise writes a message of `command` to `err`, which names the option and the
/// file, and returns false.
[[nodiscard]] bool is_written(const std::error_code& error, std::string_view command, std::string_view option,
                              const std::string& path, std::ostream& err);

/// Replaces the content of the file as write_file() does. `write` receives a path, writes the content to it, and
/// returns the error, if any. Returns that error, or the error of the replacement.
[[nodiscard]] std::error_code replace_file(const std::string& path,
                                           const std::function<std::error_code(const std::string&)>& write);

}  // namespace cox::tools
