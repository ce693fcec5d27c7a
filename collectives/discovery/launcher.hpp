#pragma once

#include <coxswain/collectives/discovery/launcher_variables.hpp>
#include <coxswain/collectives/discovery/world_place.hpp>
#include <coxswain/collectives/store/pmix_session.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace cox::detail {

/// What one launcher says.
struct LaunchedProcess {
  WorldPlace::Source source = WorldPlace::Source::OneProcess;
  std::uint16_t process = 0;
  std::uint16_t processes = 1;
  std::optional<std::uint16_t> local_process{};
  std::optional<std::uint16_t> local_processes{};
  std::string run{};
  std::uint32_t restart = 0;
  Rendezvous rendezvous{};           ///< None: the launcher names none
  std::string process_variable{};    ///< for errors: "RANK is 3"
  std::string processes_variable{};  ///< for errors: "WORLD_SIZE is 8"
};

using AskPmix = std::function<PmixJob()>;

// Each returns nothing if the launcher has not started this process, and throws ConfigError for values that are
// malformed or incomplete.

/// COX_WORLD_PROCESS, COX_WORLD_PROCESSES and what belongs to them. The rendezvous is COX_WORLD.
[[nodiscard]] std::optional<LaunchedProcess> own_variables(const LauncherVariables& variables);
[[nodiscard]] std::optional<LaunchedProcess> torchrun(const LauncherVariables& variables);
[[nodiscard]] std::optional<LaunchedProcess> pmix(const LauncherVariables& variables, const AskPmix& ask);
[[nodiscard]] std::optional<LaunchedProcess> slurm(const LauncherVariables& variables);
/// mpirun without PMIx. It names no rendezvous.
[[nodiscard]] std::optional<LaunchedProcess> mpi(const LauncherVariables& variables);

/// discover() over these variables. `ask` is called if PMIx numbers the process.
[[nodiscard]] WorldPlace discover(const WorldOptions& options, const LauncherVariables& variables, const AskPmix& ask);

}  // namespace cox::detail
