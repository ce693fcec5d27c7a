#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// One result of a check of `cox doctor`.
struct Finding {
  enum class Severity : std::uint8_t {
    Ok,
    Warning,  ///< works, but not as well as possible
    Wrong,    ///< something does not work, or can hang or give wrong results
  };
  Severity severity = Severity::Ok;
  std::string subject;  ///< "driver"
  std::string text;     ///< what was found, one line
  std::string fix;      ///< how to fix it, one line; empty for Ok
};

using Findings = std::vector<Finding>;

[[nodiscard]] constexpr std::string_view to_string(Finding::Severity severity) noexcept {
  constexpr std::array<std::string_view, 3> names{"ok", "warning", "wrong"};
  static_assert(names.size() == static_cast<std::size_t>(Finding::Severity::Wrong) + 1);
  return names[static_cast<std::size_t>(severity)];
}

}  // namespace cox::tools
