#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace cox {

/// Looks after deadlines with a thread that exists only while there are any: it is started by the first deadline,
/// checks them when the earliest has come, and ends when a check finds no further one. All functions: any thread.
class Watchdog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Called on the watchdog's thread, with no lock held; returns when to check next, or nothing. Must not throw.
  using Check = std::function<std::optional<Time>(Time now)>;

  /// `now` is the clock that deadlines are read on; std::chrono::steady_clock if it is empty.
  explicit Watchdog(Check check, std::function<Time()> now = {});
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// As stop().
  ~Watchdog();

  /// Checks at `deadline` at the latest. Does not wait for a check. Throws std::system_error if no thread can be had.
  void watch(Time deadline);
  /// Checks at once if there is a deadline. For clocks that jump.
  void recheck();
  /// Ends the thread: blocks until the check in progress has returned; a watch() after it does nothing. Not inside a
  /// check. Idempotent.
  void stop() noexcept;
  /// Whether there is a thread.
  [[nodiscard]] bool running() const;

 private:
  struct State;

  const std::shared_ptr<State> state_;  // the thread's as well, which is detached: it may be the last to let go
};

}  // namespace cox
