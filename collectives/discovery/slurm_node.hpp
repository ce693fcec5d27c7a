#pragma once

#include <coxswain/collectives/discovery/launcher_variables.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cox::detail {

/// The node of a Slurm step on which this process runs.
struct SlurmNode {
  std::uint16_t node = 0;  ///< from 0
  std::uint16_t nodes = 1;
  std::string first_host{};  ///< name of node 0; empty: not known
  std::uint16_t port = 0;    ///< see port_of_step()

  friend bool operator==(const SlurmNode&, const SlurmNode&) = default;
};
/// Nothing if srun has not started this process. Throws ConfigError for values that are malformed or incomplete, and if
/// a step of several nodes has several tasks on this one.
[[nodiscard]] std::optional<SlurmNode> slurm_node(const LauncherVariables& variables);

/// The first host of a list as Slurm writes it: "node01" of "node[01-04,07],login", "node1" of "node1,node2".
[[nodiscard]] std::string first_host(std::string_view hosts);
/// The tasks on the node with that number, from "2(x3),1": three nodes with two tasks, then one with one. Nothing if
/// the text is not of this form, or too short.
[[nodiscard]] std::optional<std::uint16_t> tasks_on_node(std::string_view text, std::uint64_t node);
/// A port for the processes of a step, below those that Linux gives to outgoing connections (32768 and more). Steps of
/// a job have different ones.
[[nodiscard]] std::uint16_t port_of_step(std::uint64_t job, std::uint64_t step);

}  // namespace cox::detail
