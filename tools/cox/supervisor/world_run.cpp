#include <coxswain/tools/cox/supervisor/world_run.hpp>

#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/tools/cox/exit_code.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>

#include <algorithm>
#include <csignal>
#include <utility>

namespace cox::tools {
namespace {

// Of two failures at the same time, the one with the smaller value is taken for the cause of the other.
int order_of_causes(const ProgramEnd& end) noexcept {
  if (end.is_lost) return 1;
  if (end.signal != 0 && end.signal != SIGABRT) return 1;
  if (end.signal != 0) return 2;
  switch (static_cast<ExitCode>(end.code)) {
    case ExitCode::GpuFault: return 0;
    case ExitCode::WorldGone: return 3;
    default: return 2;
  }
}

}  // namespace

void WorldRun::add(std::unique_ptr<WorldProcess> process, std::filesystem::path report) {
  members_.push_back({.process = std::move(process), .report = std::move(report), .end = std::nullopt});
}

bool WorldRun::tend() {
  std::vector<std::size_t> failed;
  for (std::size_t process = 0; process < members_.size(); ++process) {
    Member& member = members_[process];
    if (member.end) continue;
    member.end = member.process->end();
    if (member.end && member.end->exit_code() != 0 && !gets_successor(process)) failed.push_back(process);
  }
  if (failed.empty() && !start_successors()) {
    // A process alone is no world: those that wait for their start are taken for failed.
    for (std::size_t process = 0; process < members_.size(); ++process)
      if (members_[process].starts_again) failed.push_back(process);
  }
  if (!failure_ && !failed.empty()) {
    // Those that wait for their start have failed before.
    for (std::size_t process = 0; process < members_.size(); ++process)
      if (members_[process].starts_again && std::ranges::find(failed, process) == failed.end())
        failed.push_back(process);
    for (const std::size_t process : failed) members_[process].ended_with_first = true;
    begin_grace();
  }
  for (const std::size_t process : failed) note_failure(process);
  if (!runs()) return false;
  kill_expelled();
  const Clock::time_point now = Clock::now();
  if (state_ != State::Killed && kill_at_ && now >= *kill_at_) {
    force_end(SIGKILL, lateness_);
    state_ = State::Killed;
    due_.reset();
  } else if (due_ && now >= *due_) {
    force_end();
  }
  return true;
}

bool WorldRun::gets_successor(std::size_t process) {
  Member& member = members_[process];
  if (!successors_.delay || kill_at_ || state_ != State::Runs) return false;
  const auto delay = successors_.delay(process, *member.end);
  if (!delay) return false;
  member.starts_again = Clock::now() + *delay;
  const auto cause = fault_summary(member.report);
  err_ << "cox run: " << name_of(process) << " " << member.end->to_string() << (cause ? ": " + *cause : "")
       << "; its successor starts in " << format_duration(*delay) << "\n"
       << std::flush;
  return true;
}

// Returns false if only successors are left, which have not been started yet.
bool WorldRun::start_successors() {
  const bool waits =
      std::ranges::any_of(members_, [](const Member& member) { return member.starts_again.has_value(); });
  if (!waits) return true;
  if (std::ranges::none_of(members_, [](const Member& member) { return !member.end; })) return false;
  if (kill_at_) return true;
  for (std::size_t process = 0; process < members_.size(); ++process)
    if (members_[process].starts_again && Clock::now() >= *members_[process].starts_again) start_successor(process);
  return true;
}

// If it cannot be started, for instance while its file is being replaced, it is tried again while the limits allow it.
void WorldRun::start_successor(std::size_t process) try {
  Member& member = members_[process];
  std::error_code ignored;
  std::filesystem::remove(member.report, ignored);  // of its predecessor
  member.process = successors_.start(process);
  member.starts_again.reset();
  member.end.reset();
  member.kill_at.reset();
} catch (const std::system_error& error) {
  err_ << "cox run: the successor of process " << process << " of '" << program_
       << "' cannot be started: " << error.what() << "\n"
       << std::flush;
  Member& member = members_[process];
  const auto delay = successors_.delay(process, *member.end);
  // A year: when all others have ended, it counts as failed.
  member.starts_again = Clock::now() + delay.value_or(std::chrono::hours(24 * 365));
}

std::optional<WorldRun::Clock::time_point> WorldRun::due() const noexcept {
  std::optional<Clock::time_point> first = due_;
  if (state_ != State::Killed && kill_at_ && (!first || *kill_at_ < *first)) first = kill_at_;
  if (kill_at_) return first;
  for (const Member& member : members_)
    for (const auto& time : {member.starts_again, member.kill_at})
      if (time && (!first || *time < *first)) first = time;
  return first;
}

void WorldRun::note_expelled(std::size_t process) {
  Member& member = members_[process];
  if (!successors_.delay || state_ != State::Runs || kill_at_ || member.end || member.kill_at) return;
  member.kill_at = Clock::now() + grace_.before_terminate;
}

void WorldRun::kill_expelled() {
  for (std::size_t process = 0; process < members_.size(); ++process) {
    Member& member = members_[process];
    if (!member.kill_at || Clock::now() < *member.kill_at) continue;
    member.kill_at.reset();
    if (member.end) continue;
    err_ << "cox run: " << name_of(process) << " has been expelled from the world, has not ended within "
         << format_duration(grace_.before_terminate) << ", and is sent SIGKILL\n"
         << std::flush;
    member.process->send(SIGKILL);
  }
}

void WorldRun::begin_grace() {
  for (Member& member : members_) {
    member.starts_again.reset();
    member.kill_at.reset();
  }
  for (Member& member : members_)
    if (!member.end) member.process->note_failure();
  if (kill_at_) return;
  state_ = State::InGrace;
  due_ = Clock::now() + grace_.before_terminate;
}

void WorldRun::note_failure(std::size_t process) {
  const Member& member = members_[process];
  const bool is_first = !failure_;
  const int order = order_of_causes(*member.end);
  const bool may_be_cause = member.ended_with_first || member.process->ended_before_failure() || order == 0;
  if (is_first || (may_be_cause && order < order_of_causes(failure_->end)))
    failure_ = Failure{.process = process, .end = *member.end, .report = member.report};
  if (kill_at_) return;
  const auto cause = fault_summary(member.report);
  err_ << "cox run: " << name_of(process) << " " << member.end->to_string() << (cause ? ": " + *cause : "");
  if (is_first && state_ == State::InGrace && runs())
    err_ << "; the others have " << format_duration(grace_.before_terminate) << " to end";
  err_ << "\n" << std::flush;
}

void WorldRun::force_end() {
  const bool terminates = state_ == State::InGrace;
  const std::string after = format_duration(terminates ? grace_.before_terminate : grace_.before_kill);
  force_end(terminates ? SIGTERM : SIGKILL, "has not ended within " + after);
  state_ = terminates ? State::Terminated : State::Killed;
  due_.reset();
  if (terminates) due_ = Clock::now() + grace_.before_kill;
}

void WorldRun::force_end(int signal, const std::string& lateness) {
  for (std::size_t process = 0; process < members_.size(); ++process)
    if (!members_[process].end)
      err_ << "cox run: " << name_of(process) << " " << lateness << ", and is sent "
           << (signal == SIGTERM ? "SIGTERM" : "SIGKILL") << "\n";
  err_ << std::flush;
  send(signal);
}

void WorldRun::expect_end(Clock::time_point kill_at, std::string lateness) {
  kill_at_ = kill_at;
  lateness_ = std::move(lateness);
  if (state_ != State::Killed) due_.reset();
  for (Member& member : members_) member.kill_at.reset();
}

void WorldRun::send(int signal, ProcessRange except) noexcept {
  for (std::size_t process = 0; process < members_.size(); ++process)
    if (!members_[process].end && !except.contains(process)) members_[process].process->send(signal);
}

std::vector<pid_t> WorldRun::ids() const {
  std::vector<pid_t> ids;
  for (const Member& member : members_)
    if (member.process->id() != 0) ids.push_back(member.process->id());
  return ids;
}

bool WorldRun::runs() const noexcept {
  return std::ranges::any_of(members_, [](const Member& member) { return !member.end || member.starts_again; });
}

std::string WorldRun::name_of(std::size_t process) const {
  return "process " + std::to_string(process) + " (" + members_[process].process->place() + ") of '" + program_ + "'";
}

}  // namespace cox::tools
