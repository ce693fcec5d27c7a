#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace cox {

/// This process in its world (World::join), for what it writes: its traces, metrics and flight recorders.
struct WorldMember {
  std::uint16_t process = 0;  ///< its number, from 0
  std::uint16_t processes = 1;
  std::string host = {};
  /// What to add to a time of this process's std::chrono::steady_clock, to get that of the process that leads the
  /// world, in nanoseconds, and by how much it may be wrong. Both 0 in that process; no error: it has not been
  /// measured.
  std::int64_t clock_offset = 0;
  std::optional<std::uint64_t> clock_error = {};
};

/// Nothing if the process has joined no world, or one that has no other process. Any thread.
[[nodiscard]] std::optional<WorldMember> world_member();
void set_world_member(std::optional<WorldMember> member);
void set_world_clock(std::int64_t offset, std::uint64_t error);

/// The file of this process: where `path` is given to all processes of a world, its number is added before the
/// extension, "trace.json" -> "trace.1.json". Without other processes `path` itself.
[[nodiscard]] std::filesystem::path file_of_process(const std::filesystem::path& path);

}  // namespace cox
