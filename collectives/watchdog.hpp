#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace cox {

/// Looks after deadlines with a thread that exists only while there are any: it is started by the first deadline, looks
/// when the earliest has come, and ends when a look finds no further one. All functions: any thread.
class Watchdog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Called on the watchdog's thread, with no lock held; returns when to look next, or nothing. Must not throw.
  using Look = std::function<std::optional<Time>(Time now)>;

  /// `now` is the clock that deadlines are read on; std::chrono::steady_clock if it is empty.
  explicit Watchdog(Look look, std::function<Time()> now = {});
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// As stop().
  ~Watchdog();

  /// Looks at `deadline` at the latest. Does not wait for a look. Throws std::system_error if no thread can be had.
  void watch(Time deadline);
  /// Looks at once if there is a deadline. For clocks that jump.
  void look_again();
  /// Ends the thread, after the look that is under way; a watch() after it does nothing. Not inside a look. Idempotent.
  void stop() noexcept;
  /// Whether there is a thread.
  [[nodiscard]] bool running() const;

 private:
  void run();
  [[nodiscard]] bool waits() const { return !stopped_ && !look_again_ && now_() < next_; }

  const Look look_;
  const std::function<Time()> now_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  Time next_ = Time::max();
  bool running_ = false;
  bool look_again_ = false;
  bool stopped_ = false;
};

}  // namespace cox
