#pragma once

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/tests/fuzz/history.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cox::fuzz {

/// Ends the process, with the history of all programs, when one of them has begun no operation for that long.
class Watchdog {
 public:
  using Histories = std::vector<std::shared_ptr<const History>>;

  explicit Watchdog(std::chrono::seconds patience)
      : patience_(patience), thread_([this](const std::stop_token& stop) { run(stop); }) {}

  /// The programs that run from now on. Any thread.
  void watch(Histories histories) {
    const std::lock_guard lock(mutex_);
    histories_ = std::move(histories);
    seen_.assign(histories_.size(), {0, Clock::now()});
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t most_recorded = 8000;  ///< characters of the flight recorders

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      changed_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
      for (std::size_t i = 0; i < histories_.size(); ++i) {
        const std::size_t number = histories_[i]->number();
        if (number != seen_[i].first) seen_[i] = {number, Clock::now()};
        if (Clock::now() - seen_[i].second > patience_) report(i);
      }
    }
  }
  [[noreturn]] void report(std::size_t which) const {
    std::string text = "HANG: no operation ended in " + std::to_string(patience_.count()) + " s\n";
    text += histories_[which]->text() + "\n";
    for (std::size_t i = 0; i < histories_.size(); ++i)
      if (i != which) text += "also: " + histories_[i]->text() + "\n";
    std::fprintf(stderr, "%s%s\n", text.c_str(), dump_flight_recorders().substr(0, most_recorded).c_str());
    std::fflush(stderr);
    std::abort();
  }

  const std::chrono::seconds patience_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Histories histories_;                                            // guarded by mutex_, as the next
  std::vector<std::pair<std::size_t, Clock::time_point>> seen_{};  // by program
  std::jthread thread_;
};

}  // namespace cox::fuzz
