#pragma once

#include <coxswain/tools/cox/supervisor/program_end.hpp>

#include <string_view>
#include <vector>

namespace cox::tools {

/// The program ends that cause a restart: a GPU fault, the loss of the world, and the exit codes and signals that the
/// user added.
struct RestartCauses {
  std::vector<int> codes;  ///< in addition to ExitCode::GpuFault and ExitCode::WorldGone
  bool signals = false;    ///< any signal

  /// Parses "1,75", "signal" or "1,signal". Throws ArgumentError, which names `option`.
  [[nodiscard]] static RestartCauses parse(std::string_view option, std::string_view text);

  [[nodiscard]] bool contain(const ProgramEnd& end) const noexcept;
};

}  // namespace cox::tools
