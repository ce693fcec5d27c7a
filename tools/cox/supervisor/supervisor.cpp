#include <coxswain/tools/cox/supervisor/supervisor.hpp>

#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/tools/cox/byte_text.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>

#include <poll.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <initializer_list>
#include <system_error>
#include <utility>

namespace cox::tools {
namespace {

using Clock = RestartPolicy::Clock;

// Blocks until one of the descriptors is readable or the time has elapsed; may return early. Without `longest`, no time
// limit. Descriptors of -1 are left out.
void wait_readable(std::initializer_list<int> descriptors, std::optional<std::chrono::nanoseconds> longest) noexcept {
  constexpr std::chrono::nanoseconds::rep second = 1'000'000'000;
  std::array<pollfd, 3> watched{};
  std::size_t count = 0;
  for (const int descriptor : descriptors)
    watched[count++] = {.fd = descriptor, .events = POLLIN, .revents = 0};  // poll() leaves out negative ones
  const std::chrono::nanoseconds most = longest.value_or(std::chrono::nanoseconds(0));
  const timespec time{.tv_sec = most.count() / second, .tv_nsec = most.count() % second};
  static_cast<void>(ppoll(watched.data(), count, longest ? &time : nullptr, nullptr));
}

bool readable(int descriptor) noexcept {
  pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
  return descriptor >= 0 && poll(&watched, 1, 0) > 0;
}

}  // namespace

Supervisor::Supervisor(std::vector<std::string> program, const RestartLimits& limits, RestartCauses causes,
                       std::ostream& err)
    : program_(std::move(program)), limits_(limits), causes_(std::move(causes)), err_(err), policy_(limits) {
  adopt_orphans();
  try {
    control_.emplace();
  } catch (const std::system_error& error) {
    err_ << "cox run: cannot be asked for its status: " << error.what() << "\n" << std::flush;
  }
}

int Supervisor::run() try {
  for (;;) {
    const Clock::time_point began = Clock::now();
    const ProgramEnd end = run_once();
    const bool reloads = std::exchange(reload_requested_, false);
    const bool restarts = reloads || causes_.contain(end) || (end.signal != 0 && keeper_.holds_memory());
    if (exit_requested_ || !restarts) return end.exit_code();
    const bool progresses = finish_run();
    if (exit_requested_) return end.exit_code();
    if (reloads || (progresses && keeper_.holds_memory())) {
      report_end(end, (reloads ? "reload" : "restart " + std::to_string(restarts_ + 1)) + " with " +
                          short_byte_count(keeper_.bytes()) + " of kept memory");
      ++restarts_;
      continue;
    }
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
  FileDescriptor connection = keeper_.begin_run();
  changes[KeeperConnection::variable] = std::to_string(connection.get());
  ChildProcess child(program_, changes, descriptors_.before());
  began_ = Clock::now();
  connection.reset();             // the end of the program's processes must be the end of the connection
  forward(child, From::Anybody);  // signals that arrived before the program had started
  return wait_for(child);
}

ProgramEnd Supervisor::wait_for(ChildProcess& child) {
  for (;;) {
    const auto end = child.end();
    while (readable(keeper_.socket()) && keeper_.answer_one()) {
    }
    if (end) return *end;
    wait_readable({signals_.descriptor(), keeper_.socket(), control_ ? control_->descriptor() : -1}, std::nullopt);
    forward(child, From::Processes);
    answer_requests(&child);
    reap_children(child.id());
  }
}

void Supervisor::answer_requests(ChildProcess* child) {
  if (!control_) return;
  control_->answer([&](std::string_view request) -> std::string {
    if (request == status_request) return status(child);
    if (request != reload_request) return "unknown request\n";
    reload_requested_ = true;
    if (child == nullptr) return "the program is started now\n";
    child->send(SIGTERM);
    return "process " + std::to_string(child->id()) + " is asked to end, and is started again\n";
  });
}

std::string Supervisor::status(const ChildProcess* child) const {
  std::string text = "program: " + program_.front();
  if (child == nullptr) {
    text += ", waits for its restart\n";
  } else {
    const auto ran = std::chrono::floor<std::chrono::seconds>(Clock::now() - began_);
    text += ", process " + std::to_string(child->id()) + ", runs for " + format_duration(ran) + "\n";
  }
  text += "restarts: " + std::to_string(restarts_) + "\n";
  const std::string kept = keeper_.to_string();
  return text + (kept.empty() ? "kept memory: none\n" : "kept memory:\n" + kept);
}

bool Supervisor::finish_run() {
  if (!keeper_.was_used()) return keeper_.end_run();
  while (!kill_children()) {
    wait_readable({signals_.descriptor()}, std::chrono::milliseconds(10));
    while (const auto signal = signals_.take())
      if (CaughtSignals::requests_exit(signal->number)) exit_requested_ = true;
  }
  return keeper_.end_run();
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
    answer_requests(nullptr);
    const Clock::time_point now = Clock::now();
    if (now >= until || std::exchange(reload_requested_, false)) return std::nullopt;
    wait_readable({signals_.descriptor(), control_ ? control_->descriptor() : -1}, until - now);
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
