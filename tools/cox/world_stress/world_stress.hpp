#pragma once

#include <coxswain/tools/cox/world_stress/world_round.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cox::stress {

/// How the others learn of a fault: by the end of a connection, by silence, or because an operation takes too long.
enum class Notice : std::uint8_t { Kill, Stop, CutEnds, CutSilent, CutSilentData };
inline constexpr std::array<std::string_view, 5> notice_names{"kill", "stop", "cut, ends", "cut, silent",
                                                              "cut, silent, data"};
[[nodiscard]] Notice notice_of(const WorldFaultPlan& plan) noexcept;

/// What a stress of worlds has found.
struct WorldStressResult {
  using Counts = std::array<std::uint64_t, world_fault_names.size()>;  // by fault

  std::uint64_t rounds = 0;
  std::uint64_t repeated = 0;  ///< because this process was held up
  std::vector<Counts> states;  ///< by state: rounds
  std::array<std::vector<std::chrono::nanoseconds>, notice_names.size()> notified;  ///< by Notice
  std::vector<std::string> wrong;

  [[nodiscard]] bool ok() const noexcept { return wrong.empty(); }
  /// Tables, and the verdict.
  [[nodiscard]] std::string to_string() const;
};

/// Runs the rounds, each with a world of its own. `program`: see run_world_round(). Calls `ended` after each round.
/// Blocks until all rounds have ended, or `interrupted`. Throws std::system_error, StoreError.
[[nodiscard]] WorldStressResult run_world_stress(const WorldStressOptions& options,
                                                 const std::vector<std::string>& program,
                                                 const std::atomic<bool>& interrupted,
                                                 const std::function<void(std::uint64_t rounds)>& ended);

}  // namespace cox::stress
