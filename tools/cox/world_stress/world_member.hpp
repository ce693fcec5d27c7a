#pragma once

#include <coxswain/tools/cox/world_stress/world_fault.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cox::stress {

/// What one of the processes of a round does.
struct WorldMember {
  Scenario scenario = Scenario::Sums;
  std::uint64_t loops = 1;
  std::vector<std::uint16_t> lost;  ///< Processes that the others do without, once they have been notified.
  std::string flaw = "none";        ///< "error": it reports another error; "rest": it does not continue. For tests.
  std::string report;               ///< file

  /// As an argument of the program, and back.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] static WorldMember parse(const std::string& text);
};

/// What a process has reported: a line of its file.
struct MemberLine {
  std::string what;   ///< "joined", "not joined", "notified", "rest", "again" or "done"
  std::string error;  ///< kind of the CollectiveError; "none"; or "other"
  std::chrono::steady_clock::time_point when;
  std::string text;
};
/// The lines of a report so far. An incomplete line is left out.
[[nodiscard]] std::vector<MemberLine> read_report(const std::string& file);

/// Joins the world of the environment, and does collectives with its devices until all loops are done or one of them
/// fails in a way that the scenario does not explain. Then does collectives with the processes that are left. Returns
/// the exit code of the process: 0 if all results were right. Each process has two host devices in scenario Refusals,
/// else one.
int run_world_member(const WorldMember& member);

}  // namespace cox::stress
