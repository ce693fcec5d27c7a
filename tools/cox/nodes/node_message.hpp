#pragma once

#include <coxswain/collectives/link/message_link.hpp>
#include <coxswain/collectives/store/world_token.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

/// The messages between the agent of node 0 of a world (the head) and the agents of the other nodes, in the order in
/// which they are sent:
///
///     agent                                head
///       | NodeHello -----------------------> |   replied by NodeRejected or NodeHeartbeat
///       | <----------------------- StartNode |   once for each run
///       | NodeStarted ---------------------> |
///       | <-------- FailureNoted, SignalNode |   FailureNoted at most once for each run
///       | FailureNoted --------------------> |   at once, as the reply
///       | ProcessEnded --------------------> |   once for each process of the node
///       | <---------------------- FinishNode |   if the world is restarted
///       | NodeFinished --------------------> |
///       | <------------------------- EndNode |
///
/// NodeSignal (from the agent) and NodeHeartbeat (from both) are sent at any time. Processes of a node are named by
/// their number among those of the node.
namespace cox::tools {

inline constexpr std::uint32_t node_protocol_version = 3;
inline constexpr std::size_t max_nodes = 4096;
inline constexpr std::size_t max_world_processes = 4096;
inline constexpr std::size_t max_node_hello = 1024;                       ///< bytes of an encoded NodeHello
inline constexpr std::size_t max_fault_report = std::size_t{256} * 1024;  ///< bytes; of larger reports a part is sent

// From an agent to the head.

/// The first message. Decoding a NodeHello of another version gives that version only; all other members are empty.
struct NodeHello {
  std::uint32_t protocol = node_protocol_version;
  detail::WorldToken token{};
  std::string library = {};  ///< version of this library
  std::uint16_t node = 1;
  std::uint16_t nodes = 2;
  std::uint16_t processes = 1;  ///< of this node
  std::string host = {};
  std::uint32_t pid = 0;  ///< of the agent

  friend bool operator==(const NodeHello&, const NodeHello&) = default;
};
/// The processes of the run have been started, or none of them runs.
struct NodeStarted {
  std::uint32_t error = 0;  ///< errno; 0: they were started
  std::vector<std::uint32_t> pids = {};

  friend bool operator==(const NodeStarted&, const NodeStarted&) = default;
};
struct ProcessEnded {
  std::uint16_t process = 0;
  std::uint8_t code = 0;
  std::uint8_t signal = 0;       ///< 0: none
  bool before_failure = false;   ///< it had begun to end when the agent received FailureNoted, or none has arrived
  std::uint64_t kept_bytes = 0;  ///< kept memory that the agent holds
  bool holds_memory = false;
  bool gpu_memory_is_lost = false;  ///< by its GPU fault
  std::string report = {};          ///< of its GPU fault; empty: none

  friend bool operator==(const ProcessEnded&, const ProcessEnded&) = default;
};
/// The reply to FinishNode.
struct NodeFinished {
  bool keeps = false;       ///< a process of the node has kept memory
  bool progresses = false;  ///< a run with the memory that is held is likely to make progress
  bool holds_memory = false;
  std::uint64_t kept_bytes = 0;

  friend bool operator==(const NodeFinished&, const NodeFinished&) = default;
};
/// The agent was sent a signal.
struct NodeSignal {
  std::uint8_t number = 0;

  friend bool operator==(const NodeSignal&, const NodeSignal&) = default;
};

// In both directions.

struct NodeHeartbeat {
  friend bool operator==(const NodeHeartbeat&, const NodeHeartbeat&) = default;
};
/// The first failure of the run has been found; from an agent: it knows that.
struct FailureNoted {
  friend bool operator==(const FailureNoted&, const FailureNoted&) = default;
};

// From the head to an agent.

/// The head refuses the agent; it closes the connection.
struct NodeRejected {
  std::string text = {};
  bool may_retry = false;  ///< another agent of the node is there, which may be lost without being noticed yet

  friend bool operator==(const NodeRejected&, const NodeRejected&) = default;
};
/// Begins a run.
struct StartNode {
  std::uint64_t restart = 0;
  std::uint16_t first_process = 0;  ///< number in the world of the node's first process
  std::uint16_t processes = 2;      ///< of the world
  std::uint16_t leader_port = 0;    ///< of the leader, on the host of the head
  detail::WorldToken token{};       ///< of this run
  std::string run = {};             ///< name of the world
  std::string last_fault = {};      ///< report of the fault that ended the last run; empty: none

  friend bool operator==(const StartNode&, const StartNode&) = default;
};
/// Sends a signal to a process that runs.
struct SignalNode {
  std::uint16_t process = 0;
  std::uint8_t number = 0;

  friend bool operator==(const SignalNode&, const SignalNode&) = default;
};
/// All processes of the world have ended, and will be started again.
struct FinishNode {
  bool gpu_memory_is_lost = false;

  friend bool operator==(const FinishNode&, const FinishNode&) = default;
};
/// The world has ended: the agent kills what still runs, and ends with this code.
struct EndNode {
  std::uint8_t code = 0;
  std::string text = {};  ///< for people, why; empty: the failures of processes have been reported

  friend bool operator==(const EndNode&, const EndNode&) = default;
};

using NodeMessage = std::variant<NodeHello, NodeStarted, ProcessEnded, NodeFinished, NodeSignal, NodeHeartbeat,
                                 NodeRejected, StartNode, FailureNoted, SignalNode, FinishNode, EndNode>;

/// As encode() of a world's messages. Throws detail::world::MalformedMessage.
[[nodiscard]] std::vector<std::byte> encode(const NodeMessage& message);
/// Throws detail::world::MalformedMessage.
void decode_into(NodeMessage& message, std::span<const std::byte> encoded);

/// A text of another node with a question mark for each control character. Of the texts in messages nothing is known
/// but their length.
[[nodiscard]] std::string printable(std::string text);

/// The connection between two agents.
using NodeLink = detail::world::MessageLink<NodeMessage>;

}  // namespace cox::tools
