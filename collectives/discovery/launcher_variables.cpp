#include <coxswain/collectives/discovery/launcher_variables.hpp>

#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

#include <array>
#include <charconv>
#include <cstdlib>
#include <system_error>

namespace cox::detail {
namespace {

constexpr std::array read_variables{
    // Ours, the first in the order of precedence.
    "COX_WORLD", "COX_WORLD_PROCESS", "COX_WORLD_PROCESSES", "COX_WORLD_LOCAL_PROCESS", "COX_WORLD_LOCAL_PROCESSES",
    "COX_WORLD_RUN", "COX_WORLD_RESTART", "COX_WORLD_TOKEN",
    // torchrun
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE",
    // PMIx, and the mpirun of Open MPI
    "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
    // Slurm
    "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID",
    "SLURM_STEP_TASKS_PER_NODE", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT",
    "SLURM_NNODES", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST",
    // MPI without PMIx: Open MPI, and MPICH, Intel MPI and others with the Hydra launcher
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE",
    "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

}  // namespace

LauncherVariables launcher_variables() {
  LauncherVariables variables;
  for (const char* const name : read_variables)
    if (const char* const value = std::getenv(name)) variables.emplace(name, value);
  return variables;
}

std::string_view value_of(const LauncherVariables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found != variables.end() ? std::string_view(found->second) : std::string_view();
}

std::string in_words(std::string_view name, std::string_view value) {
  return std::string(name) + " is " + in_quotes(value);
}

std::string in_words(const LauncherVariables& variables, std::string_view name) {
  const std::string_view value = value_of(variables, name);
  return value.empty() ? std::string(name) + " is not set" : in_words(name, value);
}

std::optional<std::uint64_t> whole_number_in(const LauncherVariables& variables, std::string_view name,
                                             std::uint64_t least, std::uint64_t most) {
  const std::string_view text = value_of(variables, name);
  if (text.empty()) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || number < least || number > most)
    throw ConfigError(is_number ? ConfigError::Kind::OutOfRange : ConfigError::Kind::Malformed,
                      "environment " + in_words(name, text) + ": expected a whole number from " +
                          std::to_string(least) + " to " + std::to_string(most));
  return number;
}

std::optional<std::uint16_t> process_in(const LauncherVariables& variables, std::string_view name) {
  return number_in<std::uint16_t>(variables, name, 0, most_launched_processes - 1);
}

std::optional<std::uint16_t> count_in(const LauncherVariables& variables, std::string_view name) {
  return number_in<std::uint16_t>(variables, name, 1, most_launched_processes);
}

}  // namespace cox::detail
