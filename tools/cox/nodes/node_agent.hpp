#pragma once

#include <coxswain/tools/cox/nodes/head_connection.hpp>
#include <coxswain/tools/cox/nodes/node_options.hpp>
#include <coxswain/tools/cox/supervisor/caught_signals.hpp>
#include <coxswain/tools/cox/supervisor/control_socket.hpp>
#include <coxswain/tools/cox/supervisor/local_processes.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// The agent of a node other than node 0: runs the processes of its node as the agent of node 0 (the head) requests it,
/// and holds their kept memory. What restarts the world and what is reported is decided by the head: see
/// WorldSupervisor. One thread.
class NodeAgent {
 public:
  /// `processes`: of this node. `kept_limit`: bytes of their kept memory that are held at most. `err` must outlive this
  /// object. Throws std::system_error.
  NodeAgent(std::vector<std::string> program, std::size_t processes, std::uint64_t kept_limit,
            const NodeOptions& options, std::ostream& err);

  /// Runs until the head ends the world, or the connection to it is lost; then kills the processes that still run.
  /// Blocks until then. Returns the exit code for this process: that of the head; ExitCode::WorldGone if the head does
  /// not answer, ExitCode::BadArguments if it refuses this agent.
  [[nodiscard]] int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    std::unique_ptr<ChildProcess> child;
    bool is_reported = false;  // its end
  };

  // Each returns the exit code if this process is to end.
  [[nodiscard]] std::optional<int> handle(const NodeMessage& message);
  [[nodiscard]] std::optional<int> require_head();

  [[nodiscard]] bool runs() const;
  void start(const StartNode& run);
  // Returns the file; std::nullopt if it cannot be written.
  [[nodiscard]] std::optional<std::filesystem::path> write_last_fault(const std::string& report);
  void report_ends();
  void finish(const FinishNode& request);
  void forward_signals();
  // Stops the processes and this one, as the terminal has requested; returns when all continue.
  void stop();
  void answer_requests();
  [[nodiscard]] std::string status() const;
  [[nodiscard]] std::vector<pid_t> ids() const;
  [[nodiscard]] std::vector<int> descriptors() const;

  const NodeOptions options_;
  std::ostream& err_;
  CaughtSignals signals_;
  LocalProcesses local_;
  std::optional<ControlSocket> control_;  // none if it cannot be created
  HeadConnection head_;
  const Clock::time_point connected_until_;
  std::vector<Member> members_;  // of the run
  std::size_t first_process_ = 0;
  bool has_run_ = false;
  bool failure_is_noted_ = false;
  bool waits_for_other_ = false;    // another agent of this node is connected
  std::optional<int> exit_signal_;  // that arrived before the head has answered
};

}  // namespace cox::tools
