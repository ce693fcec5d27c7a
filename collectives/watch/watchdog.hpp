#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace cox {

/// Checks deadlines on a thread that exists only while there are any: the first deadline starts it, it calls the check
/// at the earliest deadline, and it ends when a check finds no further deadline. All functions: any thread.
class Watchdog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Called on the watchdog's thread, with no lock held. Returns the time of the next check, or nothing. Must not
  /// throw.
  using Check = std::function<std::optional<Time>(Time now)>;

  /// `now` is the clock of the deadlines; std::chrono::steady_clock if it is empty.
  explicit Watchdog(Check check, std::function<Time()> now = {});
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Calls stop().
  ~Watchdog();

  /// Schedules a check at `deadline` at the latest. Does not wait for it. Throws std::system_error if no thread can be
  /// created.
  void watch(Time deadline);
  /// Schedules a check at once if there is a deadline. For clocks that jump.
  void recheck();
  /// Ends the thread. Blocks until a check in progress has returned. Later calls of watch() do nothing. Must not be
  /// called inside a check. Idempotent.
  void stop() noexcept;
  /// Whether the thread exists.
  [[nodiscard]] bool running() const;

 private:
  struct State;

  const std::shared_ptr<State> state_;  // shared with the detached thread, which may release it last
};

}  // namespace cox
