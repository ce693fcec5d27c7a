#include <coxswain/tools/cox/world_command.hpp>

#include <coxswain/tools/cox/query_supervisor.hpp>
#include <coxswain/tools/cox/supervisor/world_supervisor.hpp>

#include <CLI/CLI.hpp>

namespace cox::tools {

WorldCommand::WorldCommand(CLI::App& app)
    : command_(*app.add_subcommand(
          "world", "Show the processes of a world that `cox run --processes` runs, and what they wait for")) {
  command_.add_option("ID", id_, "The process of that `cox run`; without it the only one");
}

bool WorldCommand::chosen() const { return command_.parsed(); }

ExitCode WorldCommand::run(std::ostream& out, std::ostream& err) const {
  return query_supervisor("cox world", WorldSupervisor::world_request, id_, out, err);
}

}  // namespace cox::tools
