#pragma once

#include <coxswain/collectives/link/link_acceptor.hpp>
#include <coxswain/collectives/link/silence.hpp>
#include <coxswain/tools/cox/nodes/connection_wait.hpp>
#include <coxswain/tools/cox/nodes/node_message.hpp>
#include <coxswain/tools/cox/nodes/node_options.hpp>
#include <coxswain/tools/cox/supervisor/program_end.hpp>
#include <coxswain/tools/cox/supervisor/world_run.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace cox::tools {

/// The other nodes of a world, in the agent of node 0 (the head): their agents connect to it, start processes when it
/// requests that, and report how these end.
///
/// A node is lost if its connection ends, if it is silent for longer than world.silence, or if it sends a message that
/// is not valid. Its processes have failed then (ProgramEnd::is_lost). Another agent for it may connect later, with the
/// same number of processes, and takes part in the next run. One thread.
class RemoteNodes {
 public:
  /// A signal that was sent to the agent of a node.
  struct Signal {
    std::uint16_t node = 1;
    int number = 0;
  };
  /// What the nodes have reported about their kept memory at the end of a run.
  struct Finish {
    bool keeps = false;      ///< processes have kept memory
    bool progresses = true;  ///< a run with the memory that is held is likely to make progress in all of these
  };

  /// Listens. `own_processes`: of node 0. Reports on `err` nodes that are lost and agents that are refused. Throws
  /// std::system_error. Precondition: node 0 of two or more.
  RemoteNodes(const NodeOptions& options, std::size_t own_processes, std::ostream& err);
  RemoteNodes(const RemoteNodes&) = delete;
  RemoteNodes& operator=(const RemoteNodes&) = delete;
  ~RemoteNodes();

  /// The address on which this object listens.
  [[nodiscard]] std::string host() const;
  /// Blocks until a descriptor is readable, or a connection has had something to do, or the time has elapsed.
  void wait(const std::vector<int>& descriptors, std::optional<std::chrono::nanoseconds> longest);

  [[nodiscard]] bool are_present() const noexcept;
  /// "2 of 3 nodes at 127.0.0.1:29400: node 1, node 2 (node7)": those that are not present.
  [[nodiscard]] std::string missing() const;
  /// Number of processes of the world. Precondition: are_present().
  [[nodiscard]] std::size_t processes() const noexcept;
  /// The processes of a node, by their numbers in the world.
  [[nodiscard]] ProcessRange processes_of(std::uint16_t node) const noexcept;

  /// Begins a run on all nodes. The members of `run` that differ between the nodes are set here. `report` names the
  /// file for the report of a GPU fault of a process. Precondition: are_present(); all processes of the last run have
  /// ended.
  void start(StartNode run, const std::function<std::filesystem::path(std::size_t process)>& report);
  /// Adds the processes of the other nodes to the run, which this object must outlive.
  void add_to(WorldRun& world);
  /// Throws std::system_error if a node could not start its processes.
  void require_started() const;
  /// Kills all processes of the run.
  void kill_run();
  /// Whether all processes of the run have ended.
  [[nodiscard]] bool have_ended() const noexcept;
  /// Whether a process of the run has reported a fault of its GPU by which the memory is lost.
  [[nodiscard]] bool gpu_memory_is_lost() const noexcept;
  /// All processes of the run have ended, and will be started again: the nodes end what they have left.
  void begin_finish(bool gpu_memory_is_lost);
  /// What they have reported; std::nullopt: not all have done so.
  [[nodiscard]] std::optional<Finish> finish() const noexcept;
  /// The next signal that was sent to an agent; std::nullopt: none.
  [[nodiscard]] std::optional<Signal> take_signal();
  /// Ends the agents with this code, also those that connect meanwhile. Blocks until they have ended, at most 5 s.
  void end(int code, const std::string& text);

  [[nodiscard]] bool hold_memory() const noexcept;
  [[nodiscard]] std::uint64_t kept_bytes() const noexcept;
  /// "node 1: node7, agent pid 4711, 4 processes (4712, 4713), 64 GB of kept memory": a line for each node.
  [[nodiscard]] std::string to_string() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Link = std::shared_ptr<NodeLink>;
  struct Member {
    std::uint32_t pid = 0;  // 0: not reported yet
    std::optional<ProgramEnd> end{};
    bool before_failure = false;
    bool gpu_memory_is_lost = false;
    std::filesystem::path report;
  };
  struct Node {
    std::uint16_t number = 1;
    Link link{};  // null: not present
    std::string host{};
    std::uint32_t pid = 0;
    std::size_t processes = 0;  // 0: it has never been present
    detail::world::Silence silence{};
    bool in_run = false;  // its agent takes part in the run
    bool has_started = false;
    bool failure_is_noted = false;  // FailureNoted has been sent
    bool knows_failure = false;     // and its agent has replied
    bool finishes = false;
    std::uint32_t start_error = 0;
    std::vector<Member> members{};  // of the run
    std::optional<NodeFinished> finished{};
    std::uint64_t kept_bytes = 0;
    bool holds_memory = false;
  };
  class Process;

  [[nodiscard]] std::string objection_to(const NodeHello& hello) const;
  void receive_hello(const Link& link, NodeMessage message);
  // Each returns what is wrong with the message; empty: nothing.
  [[nodiscard]] std::string receive(Node& node, const NodeMessage& message);
  [[nodiscard]] std::string note_started(Node& node, const NodeStarted& message) const;
  [[nodiscard]] std::string note_ended(Node& node, const ProcessEnded& message);
  void lose(Node& node, const std::string& why);
  void send_heartbeats();
  void note_failure(Node& node);
  [[nodiscard]] static std::string name(const Node& node);

  const NodeOptions options_;
  const std::size_t own_processes_;
  std::ostream& err_;
  const std::chrono::nanoseconds heartbeat_;
  const std::chrono::nanoseconds silence_;
  boost::asio::io_context io_;
  ConnectionWait wait_{io_};
  boost::asio::steady_timer timer_{io_};
  detail::world::LinkAcceptor<NodeLink> acceptor_;
  std::vector<Node> nodes_;  // from node 1 on
  std::deque<Signal> signals_;
  Time last_heartbeat_;
  Time running_since_;          // this process was not held up since then
  std::optional<EndNode> end_;  // it is ending
};

}  // namespace cox::tools
