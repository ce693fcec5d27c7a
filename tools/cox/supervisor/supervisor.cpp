#include <coxswain/tools/cox/supervisor/supervisor.hpp>

#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/tools/cox/byte_text.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>
#include <coxswain/tools/cox/supervisor/wait_readable.hpp>
#include <coxswain/tools/cox/supervisor/world_supervisor.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

namespace cox::tools {
namespace {

using Clock = RestartPolicy::Clock;

constexpr int cannot_run = 126;

}  // namespace

Supervisor::Supervisor(std::vector<std::string> program, SupervisorOptions options, std::ostream& err)
    : program_(std::move(program)),
      options_(std::move(options)),
      err_(err),
      policy_(options_.limits),
      keeper_(folder_.path() / "kept", {.bytes = options_.kept_limit, .descriptors = descriptors_.for_kept_memory()}),
      exit_(options_.kill_after) {
  adopt_orphans();
  try {
    control_.emplace();
  } catch (const std::system_error& error) {
    err_ << "cox run: --status and --reload are not available: " << error.what() << "\n" << std::flush;
  }
  if (options_.standby)
    standby_.emplace(
        options_.limits, keeper_,
        [this](const std::filesystem::path& socket) { return start(restarts_ + 1, socket, true); }, err_);
}

int Supervisor::run() try {
  for (;;) {
    const Clock::time_point began = Clock::now();
    const std::optional<ProgramEnd> ended = try_run();
    const ProgramEnd end = ended.value_or(ProgramEnd{.code = cannot_run, .signal = 0});
    const bool reloads = std::exchange(reload_requested_, false) && ended;
    const bool restarts =
        !ended || reloads || options_.causes.contain(end) || (end.signal != 0 && keeper_.holds_memory());
    if (!exit_.is_made() && !restarts && end.signal != 0) report_end(end);
    if (exit_.is_made() || !restarts) return end.exit_code();
    const bool progresses = finish_run() && keeper_.holds_memory();
    if (exit_.is_made()) return end.exit_code();
    if (reloads || progresses) {
      report_end(end, (reloads ? "reload" : "restart " + std::to_string(restarts_ + 1)) + " with " +
                          short_byte_count(keeper_.bytes()) + " of kept memory");
      ++restarts_;
      continue;
    }
    const auto delay = policy_.restart(Clock::now(), Clock::now() - began);
    const std::string limit = options_.limits.to_string();
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
  return report_not_started(program_.front(), error, err_);
}

// A program that cannot be started, for instance while its file is being replaced, is tried again if memory is held for
// it. Returns std::nullopt then.
std::optional<ProgramEnd> Supervisor::try_run() try { return run_once(); } catch (const std::system_error& error) {
  if (!keeper_.holds_memory()) throw;
  static_cast<void>(report_not_started(program_.front(), error, err_));
  return std::nullopt;
}

std::unique_ptr<ChildProcess> Supervisor::start(std::uint64_t run, const std::filesystem::path& socket,
                                                bool as_standby) {
  EnvironmentChanges changes{{"COX_RESTART", std::to_string(run)},
                             {"COX_FAULT_REPORT", report(run)},
                             {"COX_LAST_FAULT", std::nullopt},
                             {standby_variable, std::nullopt},
                             {KeeperConnection::variable, socket}};
  if (as_standby) changes[standby_variable] = "1";
  // A standby is started before the fault that it follows.
  if (as_standby || (run > 0 && std::filesystem::exists(report(run - 1)))) changes["COX_LAST_FAULT"] = report(run - 1);
  std::filesystem::remove(report(run));
  return std::make_unique<ChildProcess>(program_, changes, descriptors_.before());
}

ProgramEnd Supervisor::run_once() {
  if (restarts_ > 1) std::filesystem::remove(report(restarts_ - 2));
  std::unique_ptr<ChildProcess> child;
  if (standby_) {
    child = standby_->take();
  } else {
    keeper_.begin_run();
  }
  if (child == nullptr) child = start(restarts_, keeper_.path(), false);
  began_ = Clock::now();
  is_killed_ = false;
  reload_until_.reset();
  forward(*child);  // signals that arrived before the program had started
  return wait_for(*child);
}

std::vector<int> Supervisor::descriptors() const {
  std::vector<int> all = keeper_.descriptors();
  all.push_back(signals_.descriptor());
  if (control_) all.push_back(control_->descriptor());
  if (reload_when_ready_) all.push_back(keeper_.prepared_descriptor());
  return all;
}

ProgramEnd Supervisor::wait_for(ChildProcess& child) {
  for (;;) {
    const auto end = child.end();
    keeper_.serve();
    if (end) return *end;
    enforce_end(child);
    tend_standby(child);
    reap_children({child.id(), standby_ ? standby_->id() : 0});
    wait_readable(descriptors(), until_due());
    forward(child);
    answer_requests(&child);
  }
}

bool Supervisor::wants_standby() const noexcept {
  return standby_ && !exit_.is_made() && !reload_requested_ && keeper_.holds_memory() &&
         (keeper_.run_has_values() || standby_->id() != 0);
}

void Supervisor::tend_standby(ChildProcess& child) {
  if (!wants_standby()) return;
  const bool lives = standby_->tend();
  if (!reload_when_ready_) return;
  if (!lives) {
    reload_when_ready_ = false;
    err_ << "cox run: not reloaded: the process that was to take over has ended\n" << std::flush;
  } else if (standby_->waits()) {
    reload_when_ready_ = false;
    end_for_reload(child);
  }
}

std::optional<std::chrono::nanoseconds> Supervisor::until_due() const {
  std::optional<Clock::time_point> due = is_killed_ ? std::nullopt : kill_at();
  if (wants_standby()) due = standby_->due();
  if (!due) return std::nullopt;
  return std::max<std::chrono::nanoseconds>(*due - Clock::now(), std::chrono::nanoseconds(0));
}

std::optional<Clock::time_point> Supervisor::kill_at() const noexcept {
  return exit_.is_made() ? exit_.kill_at() : reload_until_;
}

void Supervisor::enforce_end(ChildProcess& child) {
  if (is_killed_ || !kill_at() || Clock::now() < *kill_at()) return;
  is_killed_ = true;
  const std::string lateness = exit_.is_made()
                                   ? exit_.lateness()
                                   : "has not ended within " + format_duration(options_.kill_after) + " of the reload";
  err_ << "cox run: '" << program_.front() << "' " << lateness << ", and is sent SIGKILL\n" << std::flush;
  child.send(SIGKILL);
}

void Supervisor::end_for_reload(ChildProcess& child) {
  reload_requested_ = true;
  reload_until_ = Clock::now() + options_.kill_after;
  child.send(SIGTERM);
}

void Supervisor::forward(ChildProcess& child) {
  while (const auto signal = signals_.take()) {
    if (*signal == SIGTSTP) stop(child);
    if (CaughtSignals::requests_exit(*signal)) {
      exit_.note(*signal, Clock::now());
      if (standby_) standby_->end();
    }
    if (CaughtSignals::is_passed_on(*signal)) child.send(*signal);
  }
}

void Supervisor::stop(ChildProcess& child) {
  child.send(SIGSTOP);
  if (standby_) standby_->send(SIGSTOP);
  signals_.stop();
  child.send(SIGCONT);
  if (standby_) standby_->send(SIGCONT);
}

void Supervisor::answer_requests(ChildProcess* child) {
  if (!control_) return;
  control_->answer([&](std::string_view request) -> std::string {
    if (request == status_request) return status(child);
    if (request == WorldSupervisor::world_request) return "one process, which is no world\n";
    if (request != reload_request) return "unknown request\n";
    return reload(child);
  });
}

std::string Supervisor::reload(ChildProcess* child) {
  if (child == nullptr) {
    if (standby_) standby_->end();  // it runs the program as it was
    reload_requested_ = true;
    return "the program is started now\n";
  }
  const std::string process = "process " + std::to_string(child->id());
  if (standby_ && keeper_.holds_memory() && !exit_.is_made()) {
    try {
      standby_->start();
    } catch (const std::system_error& error) {
      return "not reloaded: the program cannot be started: " + error.code().message() + "\n";
    }
    reload_when_ready_ = true;
    return process + " is sent SIGTERM when its successor, process " + std::to_string(standby_->id()) +
           ", waits for the kept memory\n";
  }
  end_for_reload(*child);
  return process + " has been sent SIGTERM; the program is started again when it has ended\n";
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
  if (standby_) text += "standby: " + standby_->to_string() + "\n";
  const std::string kept = keeper_.to_string();
  if (kept.empty()) return text + "kept memory: none\n";
  return text + "kept memory: " + short_byte_count(keeper_.bytes()) + " of at most " +
         short_byte_count(keeper_.most_bytes()) + "\n" + kept;
}

bool Supervisor::finish_run() {
  reload_when_ready_ = false;
  if (keeper_.was_used() || keeper_.holds_memory()) {
    const auto is_spared = [this](pid_t process) {
      return std::ranges::find(children_before_, process) != children_before_.end() ||
             (standby_ && standby_->includes(process));
    };
    const auto wait = [this] {
      wait_readable(descriptors(), std::chrono::milliseconds(10));
      while (const auto signal = signals_.take()) {
        if (*signal == SIGTSTP) signals_.stop();
        if (CaughtSignals::requests_exit(*signal)) exit_.note(*signal, Clock::now());
      }
      answer_requests(nullptr);
      return !exit_.is_made();
    };
    if (!end_children(is_spared, program_.front(), err_, wait)) return false;
  }
  const bool progresses = keeper_.end_run();
  if (memory_is_lost(report(restarts_))) {
    keeper_.lose_gpu_memory();
    if (standby_) standby_->end();  // it has opened those GPUs
  }
  return progresses;
}

std::optional<int> Supervisor::back_off(std::chrono::nanoseconds delay) {
  const Clock::time_point until = Clock::now() + delay;
  for (;;) {
    while (const auto signal = signals_.take()) {
      if (*signal == SIGTSTP) signals_.stop();
      if (CaughtSignals::requests_exit(*signal)) return *signal;
    }
    answer_requests(nullptr);
    const Clock::time_point now = Clock::now();
    if (now >= until || std::exchange(reload_requested_, false)) return std::nullopt;
    wait_readable(descriptors(), until - now);
  }
}

void Supervisor::report_end(const ProgramEnd& end, const std::string& what_next) {
  const auto cause = fault_summary(report(restarts_));
  err_ << "cox run: '" << program_.front() << "' " << end.to_string() << (cause ? ": " + *cause : "")
       << (what_next.empty() ? "" : "; ") << what_next << "\n"
       << std::flush;
}

std::filesystem::path Supervisor::report(std::uint64_t run) const {
  return folder_.path() / ("fault-" + std::to_string(run) + ".json");
}

}  // namespace cox::tools
