#pragma once

#include <coxswain/collectives/nccl/nccl_clique.hpp>
#include <coxswain/collectives/watch/watchdog.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace cox::detail {

/// The deadlines of all cliques: one thread, which exists only while something is under way. Any thread.
class NcclWatch {
 public:
  using Time = NcclClique::Time;

  /// Never destroyed: its thread may be asleep when the process ends.
  [[nodiscard]] static NcclWatch& of_process();

  /// Calls look() of the clique at `when` at the latest, and again when that says so. Throws std::bad_alloc,
  /// std::system_error.
  void add(const std::shared_ptr<NcclClique>& clique, Time when);
  /// Has all cliques note what has ended.
  void note_ended() noexcept;

 private:
  std::optional<Time> look(Time now) noexcept;
  std::shared_ptr<NcclClique> after(NcclClique* last) noexcept;

  std::mutex mutex_;
  std::map<NcclClique*, std::weak_ptr<NcclClique>> cliques_;  // guarded by mutex_
  Watchdog watchdog_{[this](Time now) { return look(now); }};
};

}  // namespace cox::detail
