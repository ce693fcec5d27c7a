#include <coxswain/tools/cox/supervisor/world_supervisor.hpp>

#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>
#include <coxswain/tools/cox/supervisor/supervisor.hpp>

#include <unistd.h>
#include <memory>
#include <system_error>
#include <utility>

namespace cox::tools {
namespace {

std::string token_text() { return detail::to_hexadecimal(detail::random_token()); }

}  // namespace

WorldSupervisor::WorldSupervisor(std::vector<std::string> program, WorldSupervisorOptions options, std::ostream& err)
    : program_(std::move(program)),
      options_(std::move(options)),
      err_(err),
      policy_(options_.limits),
      name_("cox-run-" + std::to_string(getpid()) + "-" + token_text()) {}

int WorldSupervisor::run() try {
  for (;;) {
    const Clock::time_point began = Clock::now();
    const auto failure = run_once();
    if (!failure) return 0;
    if (exit_requested_ || !options_.causes.contain(failure->end)) return failure->end.exit_code();
    const Clock::time_point now = Clock::now();
    const auto delay = policy_.restart(now, now - began);
    const std::string limit = options_.limits.to_string();
    if (!delay) {
      report_failure(*failure, "not restarted: the limit is " + limit);
      return failure->end.exit_code();
    }
    ++restarts_;
    report_failure(*failure, "restart " + std::to_string(restarts_) + " of all processes in " +
                                 format_duration(*delay) + " (limit " + limit + ")");
    if (const auto signal = back_off(*delay)) return ProgramEnd{.code = 0, .signal = *signal}.exit_code();
  }
} catch (const std::system_error& error) {
  return report_not_started(program_.front(), error, err_);
}

std::optional<WorldRun::Failure> WorldSupervisor::run_once() {
  if (restarts_ > 1) std::filesystem::remove_all(folder_of(restarts_ - 2));
  std::filesystem::create_directory(folder_of(restarts_));
  EnvironmentChanges changes = environment();
  WorldRun world(program_.front(), options_.grace, err_);
  for (std::size_t process = 0; process < options_.processes; ++process) {
    const std::filesystem::path report = folder_of(restarts_) / ("fault-" + std::to_string(process) + ".json");
    changes["COX_FAULT_REPORT"] = report;
    changes["COX_WORLD_PROCESS"] = std::to_string(process);
    changes["COX_WORLD_LOCAL_PROCESS"] = std::to_string(process);
    world.add(std::make_unique<ChildProcess>(program_, changes), report);
  }
  forward(world, CaughtSignals::From::Anybody);  // signals that arrived before all processes had started
  while (world.tend()) {
    std::optional<std::chrono::nanoseconds> longest;
    if (world.due()) longest = *world.due() - Clock::now();
    signals_.wait(longest);
    forward(world, CaughtSignals::From::Processes);
  }
  last_fault_.reset();
  if (world.failure() && std::filesystem::exists(world.failure()->report)) last_fault_ = world.failure()->report;
  return world.failure();
}

EnvironmentChanges WorldSupervisor::environment() const {
  const std::string processes = std::to_string(options_.processes);
  const std::string run = std::to_string(restarts_);
  EnvironmentChanges changes{{"COX_RESTART", run},
                             {"COX_LAST_FAULT", std::nullopt},
                             {Supervisor::standby_variable, std::nullopt},
                             {KeeperConnection::variable, std::nullopt},
                             {"COX_WORLD", "file:" + (folder_of(restarts_) / "store").string()},
                             {"COX_WORLD_PROCESSES", processes},
                             {"COX_WORLD_LOCAL_PROCESSES", processes},
                             {"COX_WORLD_RUN", name_},
                             {"COX_WORLD_RESTART", run},
                             {"COX_WORLD_TOKEN", token_text()}};
  if (last_fault_) changes["COX_LAST_FAULT"] = *last_fault_;
  return changes;
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

std::optional<int> WorldSupervisor::back_off(std::chrono::nanoseconds delay) {
  const Clock::time_point until = Clock::now() + delay;
  for (;;) {
    while (const auto signal = signals_.take())
      if (CaughtSignals::requests_exit(signal->number)) return signal->number;
    const Clock::time_point now = Clock::now();
    if (now >= until) return std::nullopt;
    signals_.wait(until - now);
  }
}

void WorldSupervisor::report_failure(const WorldRun::Failure& failure, const std::string& what_next) {
  const auto cause = fault_summary(failure.report);
  err_ << "cox run: the first failure of " << options_.processes << " processes of '" << program_.front()
       << "': process " << failure.process << " " << failure.end.to_string() << (cause ? ": " + *cause : "") << "; "
       << what_next << "\n"
       << std::flush;
}

std::filesystem::path WorldSupervisor::folder_of(std::uint64_t run) const {
  return folder_.path() / ("run-" + std::to_string(run));
}

}  // namespace cox::tools
