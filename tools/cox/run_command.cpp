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
    : command_(*app.add_subcommand("run", "Run a program, and again after a GPU fault: cox run -- PROGRAM ARGUMENTS")) {
  command_.add_option("--restarts", restarts_, "Start it again this often at most, within --within")
      ->capture_default_str();
  command_.add_option("--within", within_, "The time that --restarts counts in")->capture_default_str();
  command_.add_option("--backoff", backoff_, "Wait this long before a restart; twice as long before the next")
      ->capture_default_str();
  command_
      .add_option("--backoff-max", backoff_max_, "Wait this long at most; after a run as long as this, --backoff anew")
      ->capture_default_str();
  command_.add_option("--on", on_, "Start it again after these, too: CODE,CODE,signal");
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
