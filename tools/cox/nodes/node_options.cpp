#include <coxswain/tools/cox/nodes/node_options.hpp>

#include <coxswain/collectives/discovery/slurm_node.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/nodes/node_message.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

namespace cox::tools {
namespace {

std::string text_of_file(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw ArgumentError("--token-file " + file + ": " + std::strerror(errno));
  struct stat status{};
  std::array<char, 64> text{};
  const bool is_known = ::fstat(descriptor, &status) == 0;
  const ssize_t size = is_known ? ::read(descriptor, text.data(), text.size()) : -1;
  ::close(descriptor);
  if (size < 0) throw ArgumentError("--token-file " + file + " cannot be read");
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw ArgumentError("--token-file " + file + " can be accessed by others: chmod 600");
  const std::string_view all(text.data(), static_cast<std::size_t>(size));
  return std::string(all.substr(0, all.find_last_not_of(" \n") + 1));
}

detail::WorldToken token_of(const NodeArguments& arguments, const detail::LauncherVariables& variables) {
  constexpr std::string_view expected = "32 hexadecimal digits that are not all 0 (openssl rand -hex 16)";
  const auto variable = variables.find("COX_WORLD_TOKEN");
  const bool by_file = !arguments.token_file.empty();
  if (!by_file && (variable == variables.end() || variable->second.empty()))
    throw ArgumentError("--nodes needs a secret that all agents share: set COX_WORLD_TOKEN to " +
                        std::string(expected) + ", or give --token-file FILE");
  const auto token = detail::parse_token(by_file ? text_of_file(arguments.token_file) : variable->second);
  if (token) return *token;
  // The text is a secret, and is not shown.
  throw ArgumentError((by_file ? "--token-file " + arguments.token_file : std::string("COX_WORLD_TOKEN")) +
                      ": expected " + std::string(expected));
}

// "HOST:PORT" or ":PORT".
void set_leader(NodeOptions& options, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  std::string host = text.substr(0, colon);
  const bool has_brackets = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  if (has_brackets) host = host.substr(1, host.size() - 2);
  if (colon == std::string::npos || (!has_brackets && host.find(':') != std::string::npos))
    throw ArgumentError("--leader: '" + text + "' is not HOST:PORT");
  if (!host.empty()) options.host = host;
  options.port = static_cast<std::uint16_t>(
      parse_count("--leader: the port", port, options.node == 0 ? 0 : 1, std::numeric_limits<std::uint16_t>::max()));
}

}  // namespace

NodeOptions parse_node_options(const NodeArguments& arguments, bool by_slurm,
                               const detail::LauncherVariables& variables) {
  NodeOptions options;
  const bool has_nodes = !arguments.nodes.empty();
  if (has_nodes) options.nodes = static_cast<std::uint16_t>(parse_count("--nodes", arguments.nodes, 1, max_nodes));
  if (has_nodes && options.nodes == 1) return {};
  const auto slurm = has_nodes || by_slurm ? detail::slurm_node(variables) : std::nullopt;
  if (!has_nodes && slurm) options.nodes = slurm->nodes;
  if (options.nodes == 1) {
    if (arguments.need_nodes())
      throw ArgumentError("--node, --leader, --token-file and --join-within are for --nodes 2 or more");
    return {};
  }
  if (!arguments.join_within.empty())
    options.join_within = parse_time("--join-within", arguments.join_within, std::chrono::nanoseconds(0));
  if (slurm && slurm->nodes == options.nodes) {
    options.node = slurm->node;
    options.host = slurm->first_host;
    options.port = slurm->port;
  } else if (arguments.node.empty()) {
    throw ArgumentError("--nodes needs --node K: the number of this node, from 0");
  }
  if (!arguments.node.empty())
    options.node = static_cast<std::uint16_t>(parse_count("--node", arguments.node, 0, options.nodes - 1U));
  if (!arguments.leader.empty()) set_leader(options, arguments.leader);
  if (options.host.empty()) throw ArgumentError("--nodes needs --leader HOST:PORT: where the agent of node 0 listens");
  options.token = token_of(arguments, variables);
  return options;
}

}  // namespace cox::tools
