#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// Something that `cox doctor` has to say.
struct Finding {
  enum class Severity : std::uint8_t {
    Ok,
    Warning,  ///< it works, but not as well as it could
    Wrong,    ///< something does not work, or can hang or give wrong results
  };
  Severity severity = Severity::Ok;
  std::string subject;  ///< "driver"
  std::string text;     ///< what is the case, one line
  std::string fix;      ///< what to do about it, one line; empty if it is Ok
};

using Findings = std::vector<Finding>;

[[nodiscard]] constexpr std::string_view to_string(Finding::Severity severity) noexcept {
  constexpr std::array<std::string_view, 3> names{"ok", "warning", "wrong"};
  static_assert(names.size() == static_cast<std::size_t>(Finding::Severity::Wrong) + 1);
  return names[static_cast<std::size_t>(severity)];
}

}  // namespace cox::tools
