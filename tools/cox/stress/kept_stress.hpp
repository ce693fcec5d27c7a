#pragma once

#include <coxswain/tools/cox/stress/kept_round.hpp>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace cox::stress {

/// What a stress of kept sets has found.
struct KeptStressResult {
  std::uint64_t rounds = 0;  ///< processes
  std::uint64_t kills = 0;
  std::uint64_t crashes = 0;
  std::uint64_t faults = 0;  ///< of a GPU
  std::uint64_t updates = 0;
  std::uint64_t empty = 0;
  std::uint64_t whole = 0;
  std::uint64_t not_checked = 0;  ///< of the whole ones
  std::uint64_t torn = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t wrong = 0;
  std::string first_wrong;
  bool complete = false;  ///< the last round has been made

  [[nodiscard]] bool ok() const noexcept { return complete && wrong == 0; }
  /// A table, and the verdict.
  [[nodiscard]] std::string to_string() const;
};

/// Runs the rounds under a supervisor, each in a process of its own. `program`: this program with the arguments of the
/// stress; the path of the book is appended. `standby`: with a standby process. Writes what the supervisor reports to
/// `err`. Blocks. Throws std::system_error.
[[nodiscard]] KeptStressResult run_kept_stress(const KeptStress& options, std::vector<std::string> program,
                                               bool standby, std::ostream& err);

}  // namespace cox::stress
