#include <coxswain/tools/cox/stress/monitor.hpp>

#include <coxswain/tools/cox/stress/process.hpp>

#include <algorithm>
#include <string>

namespace cox::stress {
namespace {

// Poll interval of the monitor: for the user's interruption, a violation, a stuck client.
constexpr std::chrono::milliseconds round{50};
constexpr std::chrono::seconds between_reports{1};

}  // namespace

Monitor::End Monitor::watch(const std::atomic<bool>& interrupted, const ProgressSink& progress) {
  End end = End::Finished;
  for (;;) {
    auto next = Clock::now() + round;
    if (options_.duration && !crew_.stopped().load(std::memory_order_relaxed))
      next = std::min(next, started_ + std::chrono::duration_cast<Clock::duration>(*options_.duration));
    const bool finished = crew_.finished_by(next);
    ended_ = Clock::now();
    report_violations();
    if (finished) return end;
    if (interrupted.load(std::memory_order_relaxed)) end = End::Interrupted;
    if (end == End::Interrupted || time_is_up(ended_)) stop_();
    if (truth_.violations().any()) crew_.stop();
    if (const auto client = crew_.stuck(options_.patience)) {
      report_stuck(*client);
      report_violations();
      return End::Stuck;
    }
    if (ended_ - reported_ >= between_reports) report(ended_, progress);
  }
}

void Monitor::report_violations() {
  if (options_.on_poll) options_.on_poll();
  if (const auto violation = check_ && !truth_.violations().any() ? check_() : std::nullopt)
    truth_.violations().add(*violation);
  if (told_ || !truth_.violations().any()) return;
  told_ = true;
  if (options_.on_violation) options_.on_violation();
}

void Monitor::report(Clock::time_point now, const ProgressSink& progress) {
  const std::uint64_t operations = crew_.operations();
  const double since = std::chrono::duration<double>(now - reported_).count();
  if (progress)
    progress({.seconds = std::chrono::duration<double>(now - started_).count(),
              .operations = operations,
              .rate = static_cast<double>(operations - operations_) / since,
              .depth = queued_(),
              .rss_bytes = resident_bytes(),
              .faults = crew_.faults()});
  reported_ = now;
  operations_ = operations;
}

void Monitor::report_stuck(std::uint32_t client) {
  const Activity& activity = crew_.activity(client);
  const std::uint64_t number = activity.operations.load(std::memory_order_relaxed);
  truth_.violations().add(
      {.law = Law::Promptness,
       .expected = std::string(to_string(activity.operation.load(std::memory_order_relaxed))) + " completes",
       .got = "it has not completed for " + std::to_string(options_.patience.count()) + " s",
       .client = client,
       .device = truth_.device(activity.device.load(std::memory_order_relaxed)).id,
       .stream = truth_.streams(client)[0].value,
       .sequence = Sequence::of(number, 0)});
}

}  // namespace cox::stress
