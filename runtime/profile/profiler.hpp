#pragma once

#include <coxswain/runtime/config/profile_level.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace cox {

/// Collects the durations of named work and logs them at level info of the runtime: see ProfileLevel. Any thread. Does
/// not block: a duration is added to the table by the thread that completes it, at that moment. Bounded (L7): the
/// numbers of pending durations and of names in the table are limited; durations beyond a limit are only counted as
/// left out. The destructor discards the pending durations.
class Profiler {
 public:
  struct Limits {
    std::size_t pending = 65'536;  ///< durations that have not completed
    std::size_t names = 4096;      ///< rows of the table
  };

  explicit Profiler(ProfileLevel level) : Profiler(level, Limits{}) {}
  Profiler(ProfileLevel level, Limits limits);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler();

  [[nodiscard]] ProfileLevel level() const noexcept { return level_; }
  /// Whether durations are measured at this level. If not, record() drops them.
  [[nodiscard]] bool measures() const noexcept { return level_ >= ProfileLevel::Basic; }

  /// Reports that the work was queued: at level Minimal logs "Executing <name>".
  void executing(std::string_view name) const;
  /// Takes ownership of the duration, which is added to the table when it completes. At that moment a line is logged:
  /// from level Medium on "| <duration> | <name>", and at every level that measures a line for a duration that failed.
  /// Lines appear in the order in which durations complete, which may differ from the order of the work.
  void record(std::string name, ProfileDuration duration);

  /// The durations completed since the last summarise(): one row for each name, largest sum first, with the columns
  /// Name | Duration | Num Computed | Ratio. Then a row with the sum over all names and, if durations were left out
  /// (Limits), a row with their number. Empty if there are none.
  [[nodiscard]] std::string table() const;
  /// Logs the table and begins a new one. Pending durations are added to the new table. For sync().
  void summarise() noexcept;

 private:
  class Record;

  ProfileLevel level_;
  Limits limits_;
  std::shared_ptr<Record> record_;
};

}  // namespace cox
