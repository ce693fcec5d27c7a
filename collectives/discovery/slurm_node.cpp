#include <coxswain/collectives/discovery/slurm_node.hpp>

#include <coxswain/runtime/config/config_error.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <system_error>

namespace cox::detail {

std::optional<std::uint16_t> tasks_on_node(std::string_view text, std::uint64_t node) {
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    std::uint64_t tasks = 0;
    std::uint64_t nodes = 1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), tasks);
    if (error != std::errc() || tasks == 0 || tasks > most_launched_processes) return std::nullopt;
    if (const std::string_view rest = part.substr(static_cast<std::size_t>(end - part.data())); rest.starts_with("(x"))
      std::from_chars(rest.data() + 2, rest.data() + rest.size(), nodes);
    if (node < nodes) return static_cast<std::uint16_t>(tasks);
    node -= nodes;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return std::nullopt;
}

std::uint16_t port_of_step(std::uint64_t job, std::uint64_t step) {
  return static_cast<std::uint16_t>(20'000 + (job + 101 * step) % 10'000);
}

std::string first_host(std::string_view hosts) {
  std::string host;
  while (!hosts.empty() && hosts.front() != ',') {
    if (hosts.front() != '[') {
      host += hosts.front();
      hosts.remove_prefix(1);
      continue;
    }
    hosts.remove_prefix(1);
    host += hosts.substr(0, hosts.find_first_of(",-]"));
    hosts.remove_prefix(std::min(hosts.find(']'), hosts.size() - 1) + 1);
  }
  return host;
}

std::optional<SlurmNode> slurm_node(const LauncherVariables& variables) {
  using ConfigKind = ConfigError::Kind;
  // Only srun sets SLURM_STEP_ID. A batch script is one process.
  const auto step = number_in<std::uint32_t>(variables, "SLURM_STEP_ID", 0);
  const bool has_step_count = !value_of(variables, "SLURM_STEP_NUM_NODES").empty();
  const std::string_view count = has_step_count ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  const auto node = process_in(variables, "SLURM_NODEID");
  const auto nodes = count_in(variables, count);
  if (!step || (!node && !nodes)) return std::nullopt;
  if (!node || !nodes || *node >= *nodes)
    throw ConfigError(ConfigKind::Conflict, "environment: " + in_words(variables, "SLURM_NODEID") + ", " +
                                                in_words(variables, count) +
                                                ": expected the number of a node and a greater count");
  const auto tasks = tasks_on_node(value_of(variables, "SLURM_STEP_TASKS_PER_NODE"), *node);
  if (*nodes > 1 && tasks.value_or(1) > 1)
    throw ConfigError(ConfigKind::Conflict, "environment: " + in_words(variables, "SLURM_STEP_TASKS_PER_NODE") +
                                                ": one task on each node is needed (srun --ntasks-per-node=1)");
  return SlurmNode{.node = *node,
                   .nodes = *nodes,
                   .first_host = first_host(value_of(variables, "SLURM_STEP_NODELIST")),
                   .port = port_of_step(number_in<std::uint32_t>(variables, "SLURM_JOB_ID", 0).value_or(0), *step)};
}

}  // namespace cox::detail
