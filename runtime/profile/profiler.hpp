#pragma once

#include <coxswain/runtime/config/profile_level.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace cox {

/// Collects how long named work took, and logs it at level info of the runtime: see ProfileLevel. Any thread. Nothing
/// blocks: a duration is counted by whoever completes it, at that moment. Bounded (L7): durations under way and names
/// in the table have a limit, beyond it durations are only counted as left out. Destroying it forgets what is under
/// way.
class Profiler {
 public:
  struct Limits {
    std::size_t pending = 65'536;  ///< durations under way
    std::size_t names = 4096;      ///< rows of the table
  };

  explicit Profiler(ProfileLevel level) : Profiler(level, Limits{}) {}
  Profiler(ProfileLevel level, Limits limits);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler();

  [[nodiscard]] ProfileLevel level() const noexcept { return level_; }
  /// Whether durations are wanted at all. Where not, record() drops them.
  [[nodiscard]] bool measures() const noexcept { return level_ >= ProfileLevel::Basic; }

  /// The work was queued: at level Minimal logs "Executing <name>".
  void executing(std::string_view name) const;
  /// Takes the duration. It joins the table when it completes; from level Medium on a line "| <duration> | <name>" is
  /// logged then, and at every level that measures one for a duration that could not be taken. Lines come as durations
  /// become known, which is not always the order of the work.
  void record(std::string name, ProfileDuration duration);

  /// What was completed since the last summarise(): Name | Duration | Num Computed | Ratio, the longest total first,
  /// with a row for the total and one that counts what was left out. Empty if there is nothing.
  [[nodiscard]] std::string table() const;
  /// Logs the table and begins a new one. Durations that are under way stay for that one. For sync().
  void summarise() noexcept;

 private:
  class Record;

  ProfileLevel level_;
  Limits limits_;
  std::shared_ptr<Record> record_;
};

}  // namespace cox
