#include <coxswain/tools/cox/run_command.hpp>

#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/settings.hpp>
#include <coxswain/tools/cox/supervisor/supervisor.hpp>

#include <CLI/CLI.hpp>

#include <system_error>
#include <utility>

namespace cox::tools {
namespace {

constexpr std::uint64_t max_restarts = 1'000'000;

}  // namespace

RunCommand::RunCommand(CLI::App& app)
    : command_(
          *app.add_subcommand("run", "Run a program, and restart it after a GPU fault: cox run -- PROGRAM ARGUMENTS")) {
  command_.add_option("--restarts", restarts_, "Largest number of restarts within the time window --within")
      ->capture_default_str();
  command_.add_option("--within", within_, "Time window in which restarts are counted")->capture_default_str();
  command_.add_option("--backoff", backoff_, "Wait before the first restart; doubled for each further one")
      ->capture_default_str();
  command_
      .add_option("--backoff-max", backoff_max_,
                  "Longest wait before a restart; after a run of at least this time, the wait is --backoff again")
      ->capture_default_str();
  command_.add_option("--on", on_, "Also restart after these exit codes, or after any signal: CODE,CODE,signal");
}

bool RunCommand::chosen() const { return command_.parsed(); }

ExitCode RunCommand::run(std::vector<std::string> program, std::ostream& err) const {
  RestartLimits limits;
  limits.restarts = parse_count("--restarts", restarts_, 0, max_restarts);
  limits.within = parse_time("--within", within_, std::chrono::nanoseconds(1));
  limits.backoff = parse_time("--backoff", backoff_, std::chrono::nanoseconds(0));
  limits.backoff_max = parse_time("--backoff-max", backoff_max_, limits.backoff);
  const RestartCauses causes = on_.empty() ? RestartCauses{} : RestartCauses::parse("--on", on_);
  if (program.empty() || program.front().empty())
    throw ArgumentError("a program is needed: cox run [options] -- PROGRAM ARGUMENTS");
  try {
    return static_cast<ExitCode>(Supervisor(std::move(program), limits, causes, err).run());
  } catch (const std::system_error& error) {
    err << "cox run: " << error.what() << "\n";
    return ExitCode::Violation;
  }
}

}  // namespace cox::tools
