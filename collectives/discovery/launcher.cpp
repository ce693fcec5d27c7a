#include <coxswain/collectives/discovery/launcher.hpp>

#include <coxswain/collectives/discovery/slurm_node.hpp>
#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

#include <algorithm>
#include <limits>
#include <string_view>

namespace cox::detail {
namespace {

using ConfigKind = ConfigError::Kind;
constexpr std::uint64_t most_processes = most_launched_processes;

struct VariableNames {
  std::string_view process;
  std::string_view processes;
};

/// A number with its count. Nothing if neither is set.
std::optional<LaunchedProcess> numbered(const LauncherVariables& variables, VariableNames names,
                                        WorldPlace::Source source) {
  const auto process = process_in(variables, names.process);
  const auto processes = count_in(variables, names.processes);
  if (!process && !processes) return std::nullopt;
  LaunchedProcess found{.source = source};
  found.process_variable = in_words(variables, names.process);
  found.processes_variable = in_words(variables, names.processes);
  if (!process || !processes)
    throw ConfigError(ConfigKind::Conflict, "environment: " + found.process_variable + ", " + found.processes_variable +
                                                ": the number of a process and the count of all are needed together");
  if (*process >= *processes)
    throw ConfigError(ConfigKind::OutOfRange, "environment: " + found.process_variable + ", " +
                                                  found.processes_variable +
                                                  ": the number of a process is less than the count");
  found.process = *process;
  found.processes = *processes;
  return found;
}

void set_local(LaunchedProcess& found, const LauncherVariables& variables, VariableNames names) {
  found.local_process = process_in(variables, names.process);
  found.local_processes = count_in(variables, names.processes);
  if (found.local_process && found.local_processes && *found.local_process >= *found.local_processes)
    throw ConfigError(ConfigKind::OutOfRange, "environment: " + in_words(variables, names.process) + ", " +
                                                  in_words(variables, names.processes) +
                                                  ": the number of a process on its host is less than their count");
}

/// Throws unless the launchers say the same of this process.
void require_agreement(const LaunchedProcess& one, const LaunchedProcess& other) {
  if (one.process != other.process)
    throw ConfigError(ConfigKind::Conflict,
                      "environment: " + one.process_variable + ", " + other.process_variable +
                          ": two launchers disagree about this process; set COX_WORLD_PROCESS and COX_WORLD_PROCESSES");
  if (one.processes != other.processes)
    throw ConfigError(
        ConfigKind::Conflict,
        "environment: " + one.processes_variable + ", " + other.processes_variable +
            ": two launchers disagree about the processes; set COX_WORLD_PROCESS and COX_WORLD_PROCESSES");
}

/// The process as PMIX_RANK alone has it; its count is taken from `like`.
std::optional<LaunchedProcess> pmix_number(const LauncherVariables& variables, const LaunchedProcess& like) {
  const auto process = process_in(variables, "PMIX_RANK");
  if (!process) return std::nullopt;
  LaunchedProcess found{.source = WorldPlace::Source::Pmix, .process = *process, .processes = like.processes};
  found.process_variable = in_words(variables, "PMIX_RANK");
  return found;
}

/// What the launchers say, the first that has started this process. A launcher may have been started by another one:
/// torchrun and mpirun mark the processes that they have started themselves. Without a mark all must agree.
std::optional<LaunchedProcess> by_launcher(const LauncherVariables& variables, const AskPmix& ask) {
  if (auto found = torchrun(variables)) {
    if (!value_of(variables, "TORCHELASTIC_RUN_ID").empty()) return found;
    if (const auto other = pmix_number(variables, *found)) require_agreement(*found, *other);
    if (const auto other = slurm(variables)) require_agreement(*found, *other);
    return found;
  }
  if (auto found = pmix(variables, ask)) {
    if (!value_of(variables, "OMPI_COMM_WORLD_RANK").empty()) return found;
    if (const auto other = slurm(variables)) require_agreement(*found, *other);
    return found;
  }
  const auto found = mpi(variables);
  const bool is_marked =
      !value_of(variables, "OMPI_COMM_WORLD_RANK").empty() || !value_of(variables, "MPI_LOCALRANKID").empty();  // Hydra
  if (found && is_marked) return found;
  const auto by_slurm = slurm(variables);
  if (found && by_slurm) require_agreement(*by_slurm, *found);
  return by_slurm ? by_slurm : found;
}

std::optional<LaunchedProcess> by_options(const WorldOptions& options) {
  if (!options.process && !options.processes) return std::nullopt;
  const auto shown = [](const char* name, const std::optional<std::uint16_t>& number) {
    return std::string("WorldOptions::") + name + (number ? " is " + std::to_string(*number) : " is not set");
  };
  LaunchedProcess found{.source = WorldPlace::Source::Options};
  found.process_variable = shown("process", options.process);
  found.processes_variable = shown("processes", options.processes);
  const std::string both = found.process_variable + ", " + found.processes_variable;
  if (!options.process || !options.processes)
    throw ConfigError(ConfigKind::Conflict,
                      both + ": the number of a process and the count of all are needed together");
  if (*options.processes > most_processes)
    throw ConfigError(ConfigKind::OutOfRange, both + ": a world has at most " + std::to_string(most_processes));
  if (*options.process >= *options.processes)
    throw ConfigError(ConfigKind::OutOfRange, both + ": the number of a process is less than the count");
  found.process = *options.process;
  found.processes = *options.processes;
  return found;
}

WorldToken token_of(const WorldOptions& options, const LauncherVariables& variables) {
  const bool by_code = !options.token.empty();
  const std::string_view text = by_code ? std::string_view(options.token) : value_of(variables, "COX_WORLD_TOKEN");
  if (text.empty()) return {};
  if (const auto token = parse_token(text)) return *token;
  // The text is a secret, and is not shown.
  throw ConfigError(ConfigKind::Malformed,
                    std::string(by_code ? "WorldOptions::token" : "environment COX_WORLD_TOKEN") + " has " +
                        std::to_string(text.size()) + " letters: expected 32 hexadecimal digits that are not all 0");
}

Rendezvous rendezvous_of(const WorldOptions& options, const LauncherVariables& variables) {
  if (!options.rendezvous.empty()) return parse_rendezvous(options.rendezvous, "WorldOptions::rendezvous");
  if (const std::string_view text = value_of(variables, "COX_WORLD"); !text.empty())
    return parse_rendezvous(text, "environment COX_WORLD");
  return {};
}

std::string run_of(const WorldOptions& options, const LauncherVariables& variables, const LaunchedProcess& found) {
  constexpr std::size_t longest = 128;  // bytes
  std::string run = options.run;
  std::string source = "WorldOptions::run";
  if (run.empty()) {
    run = value_of(variables, "COX_WORLD_RUN");
    source = "environment COX_WORLD_RUN";
  }
  if (run.empty()) {
    run = found.run;
    source = "the launcher's name of the run";
  }
  if (run.size() > longest)
    throw ConfigError(ConfigKind::OutOfRange,
                      in_words(source, run) + ": expected at most " + std::to_string(longest) + " bytes");
  return run;
}

void require_rendezvous(const WorldPlace& place, const LaunchedProcess& found) {
  if (place.rendezvous.kind == Rendezvous::Kind::None)
    throw ConfigError(ConfigKind::Conflict, found.processes_variable +
                                                ", COX_WORLD is not set: the processes cannot find each other; set "
                                                "COX_WORLD to tcp://HOST:PORT of process 0, or COX_WORLD_PROCESS to 0 "
                                                "and COX_WORLD_PROCESSES to 1 if each process is a world of its own");
  if (place.rendezvous.kind == Rendezvous::Kind::Folder && place.run.empty())
    throw ConfigError(
        ConfigKind::Conflict,
        "COX_WORLD is " + in_quotes(to_string(place.rendezvous)) +
            ", COX_WORLD_RUN is not set: a folder needs the name of the run, one that no earlier run had");
  if (place.rendezvous.kind == Rendezvous::Kind::Leader && place.token == WorldToken{})
    throw ConfigError(ConfigKind::Conflict, "COX_WORLD is " + in_quotes(to_string(place.rendezvous)) +
                                                ", COX_WORLD_TOKEN is not set: the leader accepts no process without");
}

}  // namespace

std::optional<LaunchedProcess> own_variables(const LauncherVariables& variables) {
  auto found = numbered(variables, {"COX_WORLD_PROCESS", "COX_WORLD_PROCESSES"}, WorldPlace::Source::Variables);
  if (found) set_local(*found, variables, {"COX_WORLD_LOCAL_PROCESS", "COX_WORLD_LOCAL_PROCESSES"});
  return found;
}

std::optional<LaunchedProcess> torchrun(const LauncherVariables& variables) {
  auto found = numbered(variables, {"RANK", "WORLD_SIZE"}, WorldPlace::Source::Torchrun);
  if (!found) return std::nullopt;
  set_local(*found, variables, {"LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  found->run = value_of(variables, "TORCHELASTIC_RUN_ID");
  found->restart =
      number_in<std::uint32_t>(variables, "TORCHELASTIC_RESTART_COUNT", 0, std::numeric_limits<std::uint32_t>::max())
          .value_or(0);
  const std::string_view agent = value_of(variables, "TORCHELASTIC_USE_AGENT_STORE");
  if (!agent.empty() && agent != "True" && agent != "False")
    throw ConfigError(ConfigKind::Malformed,
                      "environment " + in_words("TORCHELASTIC_USE_AGENT_STORE", agent) + ": expected True or False");
  const auto port = number_in<std::uint16_t>(variables, "MASTER_PORT", 1, std::numeric_limits<std::uint16_t>::max());
  const std::string_view host = value_of(variables, "MASTER_ADDR");
  if (host.empty() != !port)
    throw ConfigError(ConfigKind::Conflict, "environment: " + in_words(variables, "MASTER_ADDR") + ", " +
                                                in_words(variables, "MASTER_PORT") + ": both are needed together");
  if (port)
    found->rendezvous = {.kind = agent == "True" ? Rendezvous::Kind::TorchStore : Rendezvous::Kind::Tcp,
                         .host = std::string(host),
                         .port = *port};
  return found;
}

std::optional<LaunchedProcess> pmix(const LauncherVariables& variables, const AskPmix& ask) {
  const auto process = process_in(variables, "PMIX_RANK");
  if (!process) return std::nullopt;
  const PmixJob job = ask();
  LaunchedProcess found{.source = WorldPlace::Source::Pmix, .process = *process};
  found.process_variable = in_words(variables, "PMIX_RANK");
  found.processes_variable = "PMIx has " + std::to_string(job.processes) + " processes in job " + job.name;
  if (job.process != *process)
    throw ConfigError(ConfigKind::Conflict, "environment: " + found.process_variable +
                                                ", but PMIx numbers this process " + std::to_string(job.process));
  if (job.processes > most_processes || job.process >= job.processes)
    throw ConfigError(ConfigKind::OutOfRange, found.process_variable + ", " + found.processes_variable +
                                                  ": expected at most " + std::to_string(most_processes) +
                                                  ", and a number less than the count");
  found.processes = static_cast<std::uint16_t>(job.processes);
  if (job.local_process && job.local_processes && *job.local_processes <= job.processes) {
    found.local_process = static_cast<std::uint16_t>(*job.local_process);
    found.local_processes = static_cast<std::uint16_t>(*job.local_processes);
  }
  found.run = job.name;
  found.rendezvous.kind = Rendezvous::Kind::Pmix;
  return found;
}

std::optional<LaunchedProcess> slurm(const LauncherVariables& variables) {
  // Only srun sets SLURM_STEP_ID. A batch script has a number and a count, too, but is one process.
  const auto step = number_in<std::uint64_t>(variables, "SLURM_STEP_ID", 0, std::numeric_limits<std::uint32_t>::max());
  if (!step) return std::nullopt;
  const bool has_step_count = !value_of(variables, "SLURM_STEP_NUM_TASKS").empty();
  auto found = numbered(variables, {"SLURM_PROCID", has_step_count ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"},
                        WorldPlace::Source::Slurm);
  if (!found) return std::nullopt;
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  const auto job = number_in<std::uint64_t>(variables, "SLURM_JOB_ID", 0, most);
  if (!job)
    throw ConfigError(ConfigKind::Conflict, "environment: " + found->process_variable + ", " +
                                                in_words(variables, "SLURM_JOB_ID") + ": both are needed together");
  found->local_process = process_in(variables, "SLURM_LOCALID");
  found->local_processes = tasks_on_node(value_of(variables, "SLURM_STEP_TASKS_PER_NODE"),
                                         number_in<std::uint64_t>(variables, "SLURM_NODEID", 0, most).value_or(0));
  found->run = "slurm." + std::to_string(*job) + "." + std::to_string(*step);
  found->restart = number_in<std::uint32_t>(variables, "SLURM_RESTART_COUNT", 0, most).value_or(0);
  if (const std::string_view host = value_of(variables, "SLURM_LAUNCH_NODE_IPADDR"); !host.empty())
    found->rendezvous = {.kind = Rendezvous::Kind::Tcp, .host = std::string(host), .port = port_of_step(*job, *step)};
  return found;
}

std::optional<LaunchedProcess> mpi(const LauncherVariables& variables) {
  auto found = numbered(variables, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, WorldPlace::Source::Mpi);
  if (found) {
    set_local(*found, variables, {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
    return found;
  }
  found = numbered(variables, {"PMI_RANK", "PMI_SIZE"}, WorldPlace::Source::Mpi);
  if (found) set_local(*found, variables, {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  return found;
}

WorldPlace discover(const WorldOptions& options, const LauncherVariables& variables, const AskPmix& ask) {
  WorldPlace place;
  place.token = token_of(options, variables);
  place.rendezvous = rendezvous_of(options, variables);
  auto found = by_options(options);
  if (!found) found = own_variables(variables);
  if (!found) {
    found = by_launcher(variables, ask);
    if (found && place.rendezvous.kind == Rendezvous::Kind::None) place.rendezvous = found->rendezvous;
  }
  if (!found && place.rendezvous.kind != Rendezvous::Kind::None)
    throw ConfigError(ConfigKind::Conflict,
                      "the rendezvous is " + to_string(place.rendezvous) +
                          ", COX_WORLD_PROCESS is not set: no launcher numbers this process; set COX_WORLD_PROCESS and "
                          "COX_WORLD_PROCESSES");
  if (!found) found.emplace();
  place.source = found->source;
  place.process = found->process;
  place.processes = found->processes;
  place.local_process = options.local_process ? options.local_process : found->local_process;
  place.local_processes = options.local_processes ? options.local_processes : found->local_processes;
  place.run = run_of(options, variables, *found);
  constexpr std::uint64_t most_restarts = std::numeric_limits<std::uint32_t>::max();
  const auto restart = number_in<std::uint32_t>(variables, "COX_WORLD_RESTART", 0, most_restarts);
  place.restart = options.restart.value_or(restart.value_or(found->restart));
  if (place.processes == 1) {
    place.rendezvous = {};
  } else {
    require_rendezvous(place, *found);
  }
  if (place.processes == 1 || is_loopback(place.rendezvous.host)) {  // all are on this host
    if (!place.local_process) place.local_process = place.process;
    if (!place.local_processes) place.local_processes = place.processes;
  }
  return place;
}

}  // namespace cox::detail
