#include <coxswain/tools/cox/supervisor/local_processes.hpp>

#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/tools/cox/supervisor/supervisor.hpp>

#include <algorithm>
#include <utility>

namespace cox::tools {

LocalProcesses::LocalProcesses(std::vector<std::string> program, std::size_t count, std::uint64_t kept_limit,
                               std::ostream& err)
    : program_(std::move(program)),
      count_(count),
      err_(err),
      keepers_(folder_.path() / "kept", count, {.bytes = kept_limit, .descriptors = descriptors_.for_kept_memory()}) {
  adopt_orphans();
}

void LocalProcesses::begin_run(RunOfWorld run) {
  run_ = std::move(run);
  if (run_.number > 1) std::filesystem::remove_all(folder_of(run_.number - 2));
  std::filesystem::create_directory(folder_of(run_.number));
  keepers_.begin_run();
}

std::unique_ptr<ChildProcess> LocalProcesses::start(std::size_t process, std::uint64_t restart, bool keeps) {
  const std::size_t number = run_.first_process + process;
  EnvironmentChanges changes{{"COX_FAULT_REPORT", report(number)},
                             {"COX_LAST_FAULT", std::nullopt},
                             {"COX_RESTART", std::to_string(restart)},
                             {Supervisor::standby_variable, std::nullopt},
                             {"COX_WORLD", run_.leader},
                             {"COX_WORLD_PROCESS", std::to_string(number)},
                             {"COX_WORLD_PROCESSES", std::to_string(run_.processes)},
                             {"COX_WORLD_LOCAL_PROCESS", std::to_string(process)},
                             {"COX_WORLD_LOCAL_PROCESSES", std::to_string(count_)},
                             {"COX_WORLD_RESTART", std::to_string(restart)},
                             {"COX_WORLD_RUN", run_.name},
                             {"COX_WORLD_TOKEN", detail::to_hexadecimal(run_.token)}};
  if (run_.last_fault) changes["COX_LAST_FAULT"] = *run_.last_fault;
  changes[KeeperConnection::variable] = keeps ? std::optional<std::string>(keepers_.path(process)) : std::nullopt;
  return std::make_unique<ChildProcess>(program_, changes, descriptors_.before());
}

bool LocalProcesses::end_leftovers(const std::function<bool()>& wait) {
  if (!keepers_.was_used() && !keepers_.holds_memory()) return true;
  const auto is_spared = [this](pid_t process) {
    return std::ranges::find(children_before_, process) != children_before_.end();
  };
  return end_children(is_spared, program(), err_, wait);
}

std::filesystem::path LocalProcesses::folder_of(std::uint64_t run) const {
  return folder_.path() / ("run-" + std::to_string(run));
}

std::filesystem::path LocalProcesses::report(std::size_t process) const {
  return folder_of(run_.number) / ("fault-" + std::to_string(process) + ".json");
}

}  // namespace cox::tools
