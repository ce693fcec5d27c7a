#pragma once

#include <coxswain/collectives/discovery/launcher_variables.hpp>
#include <coxswain/collectives/store/world_token.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cox::tools {

/// The place of an agent (cox run) among those of a world that runs on several nodes.
struct NodeOptions {
  std::uint16_t nodes = 1;
  std::uint16_t node = 0;      ///< of this agent
  std::string host{};          ///< of the agent of node 0: a name or an address
  std::uint16_t port = 0;      ///< of the same; 0: any free one, in the agent of node 0 alone
  detail::WorldToken token{};  ///< the secret that the agents share
  /// How long the agent of node 0 waits for the others at the start and at a restart, and the others for it.
  std::chrono::nanoseconds join_within{std::chrono::minutes(5)};
  /// How long a connection may exist before its other end has said which node it is.
  std::chrono::nanoseconds identified_within{std::chrono::seconds(10)};
};

/// The options of the command line as they were given; empty: not given.
struct NodeArguments {
  std::string nodes{};
  std::string node{};
  std::string leader{};  ///< "HOST:PORT", ":PORT"
  std::string token_file{};
  std::string join_within{};

  /// Whether one is given that only makes sense together with --nodes.
  [[nodiscard]] bool need_nodes() const noexcept {
    return !node.empty() || !leader.empty() || !token_file.empty() || !join_within.empty();
  }
};

/// Completes the options by the variables of Slurm. `by_slurm`: also the number of nodes is taken from there, if it is
/// not given. One node: all else is left out. The token is that of the file, or COX_WORLD_TOKEN. Throws ArgumentError,
/// ConfigError.
[[nodiscard]] NodeOptions parse_node_options(const NodeArguments& arguments, bool by_slurm,
                                             const detail::LauncherVariables& variables);

}  // namespace cox::tools
