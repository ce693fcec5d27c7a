#pragma once

#include <coxswain/tools/cox/supervisor/program_end.hpp>

#include <string_view>
#include <vector>

namespace cox::tools {

/// After which ends a program is started again: after a GPU fault, and what was asked for besides.
struct RestartCauses {
  std::vector<int> codes;  ///< beside ExitCode::GpuFault
  bool signals = false;    ///< any signal

  /// "1,75", "signal", "1,signal". Throws ArgumentError, which names `option`.
  [[nodiscard]] static RestartCauses parse(std::string_view option, std::string_view text);

  [[nodiscard]] bool contain(const ProgramEnd& end) const noexcept;
};

}  // namespace cox::tools
