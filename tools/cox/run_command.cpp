#include <coxswain/tools/cox/run_command.hpp>

#include <coxswain/collectives/discovery/launcher_variables.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/nodes/node_agent.hpp>
#include <coxswain/tools/cox/nodes/node_options.hpp>
#include <coxswain/tools/cox/query_supervisor.hpp>
#include <coxswain/tools/cox/settings.hpp>
#include <coxswain/tools/cox/supervisor/exclusive_devices.hpp>
#include <coxswain/tools/cox/supervisor/supervisor.hpp>
#include <coxswain/tools/cox/supervisor/world_supervisor.hpp>

#include <CLI/CLI.hpp>

#include <sys/types.h>
#include <limits>
#include <system_error>
#include <utility>

namespace cox::tools {
namespace {

constexpr std::uint64_t max_restarts = 1'000'000;
constexpr std::uint64_t max_processes = 4096;

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
  command_
      .add_option("--processes", processes_,
                  "Run this many processes of the program on this host as one world, and restart them together; not "
                  "with --standby")
      ->capture_default_str();
  command_.add_option(
      "--nodes", node_arguments_.nodes,
      "Run the world on this many nodes, with a cox run on each; with --processes 2 or more the default "
      "is that of srun");
  command_.add_option("--node", node_arguments_.node, "With --nodes: number of this node, from 0; default: from srun");
  command_
      .add_option(
          "--leader", node_arguments_.leader,
          "With --nodes: host and port where the cox run of node 0 listens; under srun both have a default, and "
          ":PORT is enough")
      ->type_name("HOST:PORT");
  command_.add_option("--token-file", node_arguments_.token_file,
                      "With --nodes: file with the secret that all have; without it COX_WORLD_TOKEN");
  command_.add_option("--join-within", node_arguments_.join_within,
                      "With --nodes: how long node 0 waits for the others at the start and at a restart, and they for "
                      "node 0; default: 5min");
  command_.add_flag("--successors", successors_,
                    "With --processes: start a process that has failed again alone, while the others run; the program "
                    "must wait for it (World::wait_for_successors)");
  command_
      .add_option("--grace", grace_,
                  "With --processes: when a process has failed, how long the others may take to end before they are "
                  "sent SIGTERM; after 5 s more they are killed")
      ->capture_default_str();
  command_
      .add_option(
          "--kill-after", kill_after_,
          "How long the program may take to end after SIGINT, SIGTERM, SIGHUP or SIGQUIT to cox run before it is "
          "killed; SIGINT 1 s or more after that kills it at once")
      ->capture_default_str();
  command_
      .add_option("--kept-limit", kept_limit_,
                  "Most bytes of kept memory that are held, of all processes together, such as 64GiB")
      ->capture_default_str();
  command_.add_flag(
      "--standby", standby_,
      "Once the program has committed an update of kept memory, start it a second time: that process waits "
      "for the memory, and takes over when the program ends");
  command_
      .add_option("--status", status_,
                  "Instead of running a program, print the state of the one that `cox run` in process ID runs, and its "
                  "kept memory; without ID of the only one")
      ->type_name("[ID]")
      ->expected(0, 1)
      ->default_str("0");
  command_
      .add_option("--reload", reload_,
                  "End that program by SIGTERM, and start it again with its kept memory; not counted as a restart")
      ->type_name("[ID]")
      ->expected(0, 1)
      ->default_str("0");
}

void RunCommand::require_alone(const std::string& request, const std::vector<std::string>& program) const {
  if (!program.empty())
    throw ArgumentError(request + " is for a `cox run` that runs: not together with a program ('--')");
  for (const CLI::Option* option : command_.get_options())
    if (option->count() != 0 && option->get_name() != request)
      throw ArgumentError(request + " is for a `cox run` that runs: not together with " + option->get_name());
}

bool RunCommand::chosen() const { return command_.parsed(); }

ExitCode RunCommand::run(std::vector<std::string> program, std::ostream& out, std::ostream& err) const {
  for (const char* request : {"--status", "--reload"})
    if (command_.count(request) != 0) require_alone(request, program);
  if (command_.count("--status") != 0)
    return query_supervisor("cox run", Supervisor::status_request, status_, out, err);
  if (command_.count("--reload") != 0)
    return query_supervisor("cox run", Supervisor::reload_request, reload_, out, err);
  const std::uint64_t processes = parse_count("--processes", processes_, 1, max_processes);
  const NodeOptions nodes = parse_node_options(node_arguments_, processes > 1, detail::launcher_variables());
  const bool is_world = processes > 1 || nodes.nodes > 1;
  if (is_world && standby_)
    throw ArgumentError("--standby is for one process: not together with --processes " + processes_ +
                        (nodes.nodes > 1 ? " on several nodes" : "") +
                        ", since its processes would need a world of their own before the other one has ended");
  if (nodes.nodes > 1 && successors_)
    throw ArgumentError("--successors is for one node: with --nodes a world is restarted as a whole");
  if (!is_world && successors_) throw ArgumentError("--successors is for --processes 2 or more");
  if (successors_ && command_.count("--kept-limit") != 0)
    throw ArgumentError("--kept-limit: no kept memory is held with --successors");
  if (!is_world && command_.count("--grace") != 0) throw ArgumentError("--grace is for --processes 2 or more");
  SupervisorOptions options;
  RestartLimits& limits = options.limits;
  limits.restarts = parse_count("--restarts", restarts_, 0, max_restarts);
  limits.within = parse_time("--within", within_, std::chrono::nanoseconds(1));
  limits.backoff = parse_time("--backoff", backoff_, std::chrono::nanoseconds(0));
  limits.backoff_max = parse_time("--backoff-max", backoff_max_, limits.backoff);
  if (!on_.empty()) options.causes = RestartCauses::parse("--on", on_);
  options.kept_limit = parse_size("--kept-limit", kept_limit_);
  options.kill_after = parse_time("--kill-after", kill_after_, std::chrono::nanoseconds(0));
  options.standby = standby_;
  const WorldGrace grace{.before_terminate = parse_time("--grace", grace_, std::chrono::nanoseconds(0))};
  if (program.empty() || program.front().empty())
    throw ArgumentError("a program is needed: cox run [options] -- PROGRAM ARGUMENTS");
  // The leader of a world and the agents use settings of this process: those that are not valid throw ConfigError here.
  if (is_world) static_cast<void>(settings());
  try {
    if (nodes.node > 0)
      return static_cast<ExitCode>(NodeAgent(std::move(program), processes, options.kept_limit, nodes, err).run());
    if (is_world)
      return static_cast<ExitCode>(WorldSupervisor(std::move(program),
                                                   {.processes = processes,
                                                    .limits = limits,
                                                    .causes = options.causes,
                                                    .grace = grace,
                                                    .kill_after = options.kill_after,
                                                    .successors = successors_,
                                                    .kept_limit = options.kept_limit,
                                                    .nodes = nodes},
                                                   err)
                                       .run());
    if (const std::string devices = standby_ ? exclusive_devices() : ""; !devices.empty()) {
      err << "cox run: --standby needs two processes on each GPU, but only one at a time may use " << devices
          << " (nvidia-smi -c)\n";
      return ExitCode::Violation;
    }
    return static_cast<ExitCode>(Supervisor(std::move(program), std::move(options), err).run());
  } catch (const std::system_error& error) {
    err << "cox run: " << error.what() << "\n";
    return ExitCode::Violation;
  }
}

}  // namespace cox::tools
