#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cox::detail {

inline constexpr std::uint64_t most_launched_processes = 4096;

/// Environment variables by name.
using LauncherVariables = std::map<std::string, std::string, std::less<>>;

/// Those variables of this process that discovery reads. No other thread may change the environment during the call.
[[nodiscard]] LauncherVariables launcher_variables();

/// The value; empty if the variable is not set.
[[nodiscard]] std::string_view value_of(const LauncherVariables& variables, std::string_view name);
/// `RANK is "3"`, `RANK is not set`.
[[nodiscard]] std::string in_words(std::string_view name, std::string_view value);
[[nodiscard]] std::string in_words(const LauncherVariables& variables, std::string_view name);
/// A whole number from `least` to `most`; nothing if the variable is not set. Throws ConfigError for another value.
[[nodiscard]] std::optional<std::uint64_t> whole_number_in(const LauncherVariables& variables, std::string_view name,
                                                           std::uint64_t least, std::uint64_t most);
template <class T>
[[nodiscard]] std::optional<T> number_in(const LauncherVariables& variables, std::string_view name, std::uint64_t least,
                                         std::uint64_t most = std::numeric_limits<T>::max()) {
  const auto number = whole_number_in(variables, name, least, most);
  return number ? std::optional<T>(static_cast<T>(*number)) : std::nullopt;
}
/// The number of a process, and a count of processes.
[[nodiscard]] std::optional<std::uint16_t> process_in(const LauncherVariables& variables, std::string_view name);
[[nodiscard]] std::optional<std::uint16_t> count_in(const LauncherVariables& variables, std::string_view name);

}  // namespace cox::detail
