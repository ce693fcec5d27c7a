#include <coxswain/tools/cox/supervisor/world_supervisor.hpp>

#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/tools/cox/byte_text.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>
#include <coxswain/tools/cox/supervisor/supervisor.hpp>
#include <coxswain/tools/cox/supervisor/wait_readable.hpp>

#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <memory>
#include <system_error>
#include <utility>

namespace cox::tools {

WorldSupervisor::WorldSupervisor(std::vector<std::string> program, WorldSupervisorOptions options, std::ostream& err)
    : program_(std::move(program)),
      options_(std::move(options)),
      err_(err),
      policy_(options_.limits),
      name_("cox-run-" + std::to_string(getpid()) + "-" + detail::to_hexadecimal(detail::random_token())),
      keepers_(folder_.path() / "kept", options_.processes,
               {.bytes = options_.kept_limit, .descriptors = descriptors_.for_kept_memory()}) {
  adopt_orphans();
  try {
    control_.emplace();
  } catch (const std::system_error& error) {
    err_ << "cox run: --status and --reload are not available: " << error.what() << "\n" << std::flush;
  }
}

int WorldSupervisor::run() try {
  for (;;) {
    const ProgramEnd end = try_run();
    const bool reloads = std::exchange(reload_requested_, false);
    const bool restarts = reloads || (end.exit_code() != 0 && (!failure_ || options_.causes.contain(end) ||
                                                               (end.signal != 0 && keepers_.holds_memory())));
    if (exit_requested_ || !restarts) return end.exit_code();
    const bool progresses = finish_run() && keepers_.holds_memory();
    if (exit_requested_) return end.exit_code();
    if (reloads || progresses) {
      report_end((reloads ? "reload" : "restart " + std::to_string(restarts_ + 1) + " of all processes") + " with " +
                 short_byte_count(keepers_.bytes()) + " of kept memory");
      ++restarts_;
      continue;
    }
    const Clock::time_point now = Clock::now();
    const auto delay = policy_.restart(now, now - began_);
    const std::string limit = options_.limits.to_string();
    if (!delay) {
      report_end("not restarted: the limit is " + limit);
      return end.exit_code();
    }
    report_end("restart " + std::to_string(restarts_ + 1) + " of all processes in " + format_duration(*delay) +
               " (limit " + limit + ")");
    ++restarts_;
    if (const auto signal = back_off(*delay)) return ProgramEnd{.code = 0, .signal = *signal}.exit_code();
  }
} catch (const std::system_error& error) {
  return report_not_started(program_.front(), error, err_);
}

// A program that cannot be started, for instance while its file is being replaced, is tried again if memory is held for
// it; there is no failure_ then.
ProgramEnd WorldSupervisor::try_run() try {
  failure_.reset();
  began_ = Clock::now();
  failure_ = run_once();
  return failure_ ? failure_->end : ProgramEnd{};
} catch (const std::system_error& error) {
  if (!keepers_.holds_memory()) throw;
  return {.code = report_not_started(program_.front(), error, err_), .signal = 0};
}

std::optional<WorldRun::Failure> WorldSupervisor::run_once() {
  if (restarts_ > 1) std::filesystem::remove_all(folder_of(restarts_ - 2));
  std::filesystem::create_directory(folder_of(restarts_));
  keepers_.begin_run();
  token_ = detail::random_token();
  leader_ = std::make_unique<WorldLeader>(
      WorldLeaderOptions{.processes = static_cast<std::uint16_t>(options_.processes), .run = name_, .token = token_});
  if (!started_again_.empty()) started_before_ += std::ranges::max(started_again_);
  started_again_.assign(options_.processes, 0);
  started_at_.assign(options_.processes, Clock::now());
  WorldRun world(program_.front(), options_.grace, err_, options_.successors ? successors() : WorldSuccessors{});
  start_processes(world);
  forward(world, CaughtSignals::From::Anybody);  // signals that arrived before all processes had started
  while (world.tend()) {
    keepers_.serve();
    reap_children(world.ids());
    std::optional<std::chrono::nanoseconds> longest;
    if (world.due()) longest = *world.due() - Clock::now();
    wait_readable(descriptors(), longest);
    forward(world, CaughtSignals::From::Processes);
    answer_requests(&world);
  }
  keepers_.serve();
  leader_.reset();
  last_fault_.reset();
  if (world.failure() && std::filesystem::exists(world.failure()->report)) last_fault_ = world.failure()->report;
  return world.failure();
}

void WorldSupervisor::start_processes(WorldRun& world) {
  for (std::size_t process = 0; process < options_.processes; ++process)
    world.add(start_process(process), report(process));
}

std::unique_ptr<ChildProcess> WorldSupervisor::start_process(std::size_t process) {
  EnvironmentChanges changes = environment();
  changes["COX_FAULT_REPORT"] = report(process);
  changes["COX_WORLD_PROCESS"] = std::to_string(process);
  changes["COX_WORLD_LOCAL_PROCESS"] = std::to_string(process);
  const std::string restart = std::to_string(restarts_ + started_before_ + started_again_[process]);
  started_at_[process] = Clock::now();
  changes["COX_RESTART"] = restart;
  changes["COX_WORLD_RESTART"] = restart;
  changes[KeeperConnection::variable] =
      options_.successors ? std::nullopt : std::optional<std::string>(keepers_.path(process));
  return std::make_unique<ChildProcess>(program_, changes, descriptors_.before());
}

WorldSuccessors WorldSupervisor::successors() {
  return {.delay = [this](std::size_t process, const ProgramEnd& end) -> std::optional<std::chrono::nanoseconds> {
            const bool is_cause = options_.causes.contain(end) || end.signal != 0;
            if (exit_requested_ || reload_requested_ || !is_cause) return std::nullopt;
            const Clock::time_point now = Clock::now();
            return policy_.restart(now, now - started_at_[process]);
          },
          .start =
              [this](std::size_t process) {
                ++started_again_[process];
                return start_process(process);
              }};
}

EnvironmentChanges WorldSupervisor::environment() const {
  const std::string processes = std::to_string(options_.processes);
  EnvironmentChanges changes{{"COX_LAST_FAULT", std::nullopt},
                             {Supervisor::standby_variable, std::nullopt},
                             {"COX_WORLD", leader_->address()},
                             {"COX_WORLD_PROCESSES", processes},
                             {"COX_WORLD_LOCAL_PROCESSES", processes},
                             {"COX_WORLD_RUN", name_},
                             {"COX_WORLD_TOKEN", detail::to_hexadecimal(token_)}};
  if (last_fault_) changes["COX_LAST_FAULT"] = *last_fault_;
  return changes;
}

std::vector<int> WorldSupervisor::descriptors() const {
  std::vector<int> all = keepers_.descriptors();
  all.push_back(signals_.descriptor());
  if (control_) all.push_back(control_->descriptor());
  return all;
}

void WorldSupervisor::forward(WorldRun& world, CaughtSignals::From from) {
  while (const auto signal = signals_.take()) {
    if (CaughtSignals::requests_exit(signal->number)) {
      exit_requested_ = true;
      world.expect_end();
    }
    if (CaughtSignals::is_passed_on(*signal, from)) world.send(signal->number);
  }
}

void WorldSupervisor::answer_requests(WorldRun* world) {
  if (!control_) return;
  control_->answer([&](std::string_view request) -> std::string {
    if (request == Supervisor::status_request) return status(world);
    if (request == world_request) return leader_ ? leader_->describe() : "the processes wait for their restart\n";
    if (request != Supervisor::reload_request) return "unknown request\n";
    return reload(world);
  });
}

std::string WorldSupervisor::reload(WorldRun* world) {
  reload_requested_ = true;
  if (world == nullptr) return "the processes are started now\n";
  world->expect_end();
  world->send(SIGTERM);
  return "all processes have been sent SIGTERM; they are started again when all have ended\n";
}

std::string WorldSupervisor::status(const WorldRun* world) const {
  std::string text = "program: " + program_.front() + ", " + std::to_string(options_.processes) + " processes";
  if (world == nullptr) {
    text += ", wait for their restart\n";
  } else {
    const auto ran = std::chrono::floor<std::chrono::seconds>(Clock::now() - began_);
    std::string ids;
    for (const pid_t id : world->ids()) ids += (ids.empty() ? "" : ", ") + std::to_string(id);
    text += " (" + ids + "), run for " + format_duration(ran) + "\n";
  }
  text += "restarts: " + std::to_string(restarts_) + "\n";
  const std::string kept = keepers_.to_string();
  if (kept.empty()) return text + "kept memory: none\n";
  return text + "kept memory: " + short_byte_count(keepers_.bytes()) + " of at most " +
         short_byte_count(keepers_.most_bytes()) + "\n" + kept;
}

bool WorldSupervisor::finish_run() {
  if (keepers_.was_used()) {
    const auto is_spared = [this](pid_t process) {
      return std::ranges::find(children_before_, process) != children_before_.end();
    };
    const auto wait = [this] {
      wait_readable(descriptors(), std::chrono::milliseconds(10));
      while (const auto signal = signals_.take())
        if (CaughtSignals::requests_exit(signal->number)) exit_requested_ = true;
      answer_requests(nullptr);
      return !exit_requested_;
    };
    if (!end_children(is_spared, program_.front(), err_, wait)) return false;
  }
  const bool progresses = keepers_.end_run();
  for (std::size_t process = 0; process < options_.processes; ++process)
    if (memory_is_lost(report(process))) keepers_.drop_gpu_memory();
  return progresses;
}

std::optional<int> WorldSupervisor::back_off(std::chrono::nanoseconds delay) {
  const Clock::time_point until = Clock::now() + delay;
  for (;;) {
    while (const auto signal = signals_.take())
      if (CaughtSignals::requests_exit(signal->number)) return signal->number;
    answer_requests(nullptr);
    const Clock::time_point now = Clock::now();
    if (now >= until || std::exchange(reload_requested_, false)) return std::nullopt;
    wait_readable(descriptors(), until - now);
  }
}

void WorldSupervisor::report_end(const std::string& what_next) {
  err_ << "cox run: ";
  if (failure_) {
    const auto cause = fault_summary(failure_->report);
    err_ << "the first failure of " << options_.processes << " processes of '" << program_.front() << "': process "
         << failure_->process << " " << failure_->end.to_string() << (cause ? ": " + *cause : "") << "; ";
  }
  err_ << what_next << "\n" << std::flush;
}

std::filesystem::path WorldSupervisor::folder_of(std::uint64_t run) const {
  return folder_.path() / ("run-" + std::to_string(run));
}

std::filesystem::path WorldSupervisor::report(std::size_t process) const {
  return folder_of(restarts_) / ("fault-" + std::to_string(process) + ".json");
}

}  // namespace cox::tools
