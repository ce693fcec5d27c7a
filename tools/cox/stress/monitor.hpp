#pragma once

#include <coxswain/tools/cox/stress/crew.hpp>
#include <coxswain/tools/cox/stress/options.hpp>
#include <coxswain/tools/cox/stress/progress.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace cox::stress {

/// Watches a crew at work: ends the run when it is time, and reports progress. One thread.
class Monitor {
 public:
  enum class End : std::uint8_t { Finished, Interrupted, Stuck };

  /// The run begins now. `queued` returns how many closures the devices have queued; it must not block on them.
  Monitor(const Options& options, Crew& crew, Truth& truth, std::function<std::size_t()> queued)
      : options_(options), crew_(crew), truth_(truth), queued_(std::move(queued)) {}

  /// Sets an additional check, which watch() calls at each poll. A violation that it returns is reported.
  void set_check(std::function<std::optional<Violation>()> check) { check_ = std::move(check); }
  /// Sets how the run is ended when its time is up, or the user wants its end; default: the crew is stopped.
  void set_stop(std::function<void()> stop) { stop_ = std::move(stop); }
  /// Blocks until all clients have finished or one is stuck, which is a violation.
  [[nodiscard]] End watch(const std::atomic<bool>& interrupted, const ProgressSink& progress);

  /// From the construction to the last poll of watch().
  [[nodiscard]] double seconds() const noexcept { return std::chrono::duration<double>(ended_ - started_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool time_is_up(Clock::time_point now) const noexcept {
    return options_.duration && now - started_ >= *options_.duration;
  }
  void report_violations();
  void report(Clock::time_point now, const ProgressSink& progress);
  void report_stuck(std::uint32_t client);

  const Options& options_;
  Crew& crew_;
  Truth& truth_;
  std::function<std::size_t()> queued_;
  std::function<std::optional<Violation>()> check_;
  std::function<void()> stop_ = [this] { crew_.stop(); };
  bool told_ = false;  // on_violation has been called
  Clock::time_point started_ = Clock::now();
  Clock::time_point ended_ = started_;
  Clock::time_point reported_ = started_;
  std::uint64_t operations_ = 0;  // at the last report
};

}  // namespace cox::stress
