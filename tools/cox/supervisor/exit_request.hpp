#pragma once

#include <coxswain/runtime/config/duration.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace cox::tools {

/// The signals that request the end of a run, and the time at which the processes that still run are killed: some time
/// after the first signal, or at once when a node is sent SIGINT 1 s or more after its first signal. Schedulers and
/// launchers send SIGTERM more than once, and signals of different kinds together. One thread.
class ExitRequest {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ExitRequest(std::chrono::nanoseconds kill_after) noexcept : kill_after_(kill_after) {}

  /// A signal for which CaughtSignals::requests_exit() holds has arrived at that node.
  void note(int signal, Clock::time_point now, std::uint16_t node = 0) {
    if (!kill_at_) kill_at_ = now + kill_after_;
    const Clock::time_point first = first_.try_emplace(node, now).first->second;
    if (signal != SIGINT || now < first + std::chrono::seconds(1) || is_repeated_) return;
    is_repeated_ = true;
    kill_at_ = now;
  }

  [[nodiscard]] bool is_made() const noexcept { return kill_at_.has_value(); }
  /// When the processes are killed; std::nullopt: no signal has arrived.
  [[nodiscard]] std::optional<Clock::time_point> kill_at() const noexcept { return kill_at_; }
  /// What a process that is killed then has done: "has not ended within 30s of the signal".
  [[nodiscard]] std::string lateness() const {
    return is_repeated_ ? "has not ended before the second signal"
                        : "has not ended within " + format_duration(kill_after_) + " of the signal";
  }

 private:
  std::chrono::nanoseconds kill_after_;
  std::optional<Clock::time_point> kill_at_;
  std::map<std::uint16_t, Clock::time_point> first_;  // signal, by node
  bool is_repeated_ = false;
};

}  // namespace cox::tools
