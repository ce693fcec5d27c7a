#include <coxswain/tools/cox/supervisor/supervisor.hpp>

#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>

#include <poll.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>
#include <utility>

namespace cox::tools {
namespace {

using Clock = RestartPolicy::Clock;

// Blocks until the descriptor is readable or the time has elapsed; may return early. Without `longest`, no time limit.
void wait_readable(int descriptor, std::optional<std::chrono::nanoseconds> longest) noexcept {
  constexpr std::chrono::nanoseconds::rep second = 1'000'000'000;
  pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
  if (!longest) {
    static_cast<void>(poll(&watched, 1, -1));
    return;
  }
  const timespec time{.tv_sec = longest->count() / second, .tv_nsec = longest->count() % second};
  static_cast<void>(ppoll(&watched, 1, &time, nullptr));
}

}  // namespace

Supervisor::Supervisor(std::vector<std::string> program, const RestartLimits& limits, RestartCauses causes,
                       std::ostream& err)
    : program_(std::move(program)), limits_(limits), causes_(std::move(causes)), err_(err), policy_(limits) {}

int Supervisor::run() try {
  for (;;) {
    const Clock::time_point began = Clock::now();
    const ProgramEnd end = run_once();
    if (exit_requested_ || !causes_.contain(end)) return end.exit_code();
    const Clock::time_point ended = Clock::now();
    const auto delay = policy_.restart(ended, ended - began);
    const std::string limit = std::to_string(limits_.restarts) + " within " + format_duration(limits_.within);
    if (!delay) {
      report_end(end, "not restarted: the limit is " + limit);
      return end.exit_code();
    }
    report_end(
        end, "restart " + std::to_string(restarts_ + 1) + " in " + format_duration(*delay) + " (limit " + limit + ")");
    ++restarts_;
    if (const auto signal = back_off(*delay)) return ProgramEnd{.code = 0, .signal = *signal}.exit_code();
  }
} catch (const std::system_error& error) {
  constexpr int cannot_run = 126;
  constexpr int not_found = 127;
  err_ << "cox run: cannot start '" << program_.front() << "': " << error.code().message() << "\n" << std::flush;
  return error.code() == std::errc::no_such_file_or_directory ? not_found : cannot_run;
}

ProgramEnd Supervisor::run_once() {
  EnvironmentChanges changes{{"COX_RESTART", std::to_string(restarts_)},
                             {"COX_FAULT_REPORT", report(restarts_)},
                             {"COX_LAST_FAULT", std::nullopt}};
  if (restarts_ > 0 && std::filesystem::exists(report(restarts_ - 1)))
    changes["COX_LAST_FAULT"] = report(restarts_ - 1);
  if (restarts_ > 1) std::filesystem::remove(report(restarts_ - 2));
  ChildProcess child(program_, changes);
  forward(child, From::Anybody);  // signals that arrived before the program had started
  return wait_for(child);
}

ProgramEnd Supervisor::wait_for(ChildProcess& child) {
  for (;;) {
    if (const auto end = child.end()) return *end;
    wait_readable(signals_.descriptor(), std::nullopt);
    forward(child, From::Processes);
  }
}

void Supervisor::forward(ChildProcess& child, From from) {
  while (const auto signal = signals_.take()) {
    if (CaughtSignals::requests_exit(signal->number)) exit_requested_ = true;
    const bool wanted = from == From::Anybody || !signal->from_kernel || signal->number == SIGHUP;
    if (wanted && CaughtSignals::is_passed_on(signal->number)) child.send(signal->number);
  }
}

std::optional<int> Supervisor::back_off(std::chrono::nanoseconds delay) {
  const Clock::time_point until = Clock::now() + delay;
  for (;;) {
    while (const auto signal = signals_.take()) {
      if (CaughtSignals::requests_exit(signal->number)) return signal->number;
    }
    const Clock::time_point now = Clock::now();
    if (now >= until) return std::nullopt;
    wait_readable(signals_.descriptor(), until - now);
  }
}

void Supervisor::report_end(const ProgramEnd& end, const std::string& what_next) {
  const auto cause = fault_summary(report(restarts_));
  err_ << "cox run: '" << program_.front() << "' " << end.to_string() << (cause ? ": " + *cause : "") << "; "
       << what_next << "\n"
       << std::flush;
}

std::filesystem::path Supervisor::report(std::uint64_t run) const {
  return folder_.path() / ("fault-" + std::to_string(run) + ".json");
}

}  // namespace cox::tools
