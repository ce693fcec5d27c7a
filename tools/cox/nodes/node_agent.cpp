#include <coxswain/tools/cox/nodes/node_agent.hpp>

#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/tools/cox/exit_code.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>
#include <coxswain/tools/cox/supervisor/supervisor.hpp>
#include <coxswain/tools/cox/supervisor/world_supervisor.hpp>
#include <coxswain/tools/cox/version.hpp>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

namespace cox::tools {
namespace {

constexpr int world_gone = static_cast<int>(ExitCode::WorldGone);

NodeHello hello_of(const NodeOptions& options, std::size_t processes) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || host.front() == '\0') host = {'?'};
  return {.token = options.token,
          .library = std::string(version),
          .node = options.node,
          .nodes = options.nodes,
          .processes = static_cast<std::uint16_t>(processes),
          .host = host.data(),
          .pid = static_cast<std::uint32_t>(getpid())};
}

int code_of_signal(int signal) { return ProgramEnd{.code = 0, .signal = signal}.exit_code(); }

}  // namespace

NodeAgent::NodeAgent(std::vector<std::string> program, std::size_t processes, std::uint64_t kept_limit,
                     const NodeOptions& options, std::ostream& err)
    : options_(options),
      err_(err),
      local_(std::move(program), processes, kept_limit, err),
      head_(options, hello_of(options, processes)),
      connected_until_(Clock::now() + options.join_within) {
  try {
    control_.emplace();
  } catch (const std::system_error& error) {
    err_ << "cox run: --status is not available: " << error.what() << "\n" << std::flush;
  }
}

int NodeAgent::run() {
  for (;;) {
    while (const auto message = head_.take())
      if (const auto code = handle(*message)) return *code;
    if (const auto code = require_head()) return *code;
    if (has_run_) {
      local_.keepers().serve();
      report_ends();
      reap_children(ids());
    }
    std::optional<std::chrono::nanoseconds> longest;
    if (!head_.is_answered()) longest = connected_until_ - Clock::now();
    head_.wait(descriptors(), longest);
    forward_signals();
    answer_requests();
  }
}

std::optional<int> NodeAgent::require_head() {
  if (head_.lost()) {
    err_ << "cox run: the agent of node 0 at " << head_.address() << " is lost: " << *head_.lost()
         << (runs() ? "; the processes of this node are killed\n" : "\n") << std::flush;
    return world_gone;
  }
  if (exit_signal_ && !head_.is_connected()) return code_of_signal(*exit_signal_);
  if (head_.is_answered() || Clock::now() < connected_until_) return std::nullopt;
  err_ << "cox run: the agent of node 0 at " << head_.address() << " cannot be reached within "
       << format_duration(options_.join_within) << ": " << head_.last_failure() << "\n"
       << std::flush;
  return world_gone;
}

std::optional<int> NodeAgent::handle(const NodeMessage& message) {
  if (const auto* const rejected = std::get_if<NodeRejected>(&message)) {
    const std::string text = printable(rejected->text);
    if (exit_signal_) return code_of_signal(*exit_signal_);
    if (rejected->may_retry) {
      if (!std::exchange(waits_for_other_, true))
        err_ << "cox run: " << text << "; waits until it is lost, at most " << format_duration(options_.join_within)
             << "\n"
             << std::flush;
      head_.connect_again(text);
      return std::nullopt;
    }
    err_ << "cox run: the agent of node 0 at " << head_.address() << " refuses this one: " << text << "\n"
         << std::flush;
    return static_cast<int>(ExitCode::BadArguments);
  }
  if (const auto* const end = std::get_if<EndNode>(&message)) {
    if (!end->text.empty()) err_ << "cox run: " << printable(end->text) << "\n" << std::flush;
    return end->code;
  }
  if (const auto* const run = std::get_if<StartNode>(&message); run != nullptr && !runs()) {
    start(*run);
  } else if (const auto* const signal = std::get_if<SignalNode>(&message);
             signal != nullptr && signal->process < local_.count()) {
    if (signal->process < members_.size()) members_[signal->process].child->send(signal->number);
  } else if (const auto* const finish_node = std::get_if<FinishNode>(&message); finish_node != nullptr && !runs()) {
    finish(*finish_node);
  } else if (std::holds_alternative<FailureNoted>(message)) {
    failure_is_noted_ = true;
    for (const Member& member : members_)
      if (!member.is_reported) member.child->note_failure();
    head_.send(FailureNoted{});
  } else {
    head_.lose("it sent a message that is not expected");
  }
  return std::nullopt;
}

void NodeAgent::start(const StartNode& run) {
  RunOfWorld its{.number = run.restart,
                 .leader = head_.leader(run.leader_port),
                 .token = run.token,
                 .name = run.run,
                 .processes = run.processes,
                 .first_process = run.first_process};
  if (!run.last_fault.empty()) its.last_fault = write_last_fault(run.last_fault);
  members_.clear();
  first_process_ = run.first_process;
  failure_is_noted_ = false;
  NodeStarted started;
  try {
    local_.begin_run(std::move(its));
    has_run_ = true;
    for (std::size_t process = 0; process < local_.count(); ++process) {
      members_.push_back({.child = local_.start(process, run.restart)});
      started.pids.push_back(static_cast<std::uint32_t>(members_.back().child->id()));
    }
  } catch (const std::system_error& error) {
    static_cast<void>(report_not_started(local_.program(), error, err_));
    members_.clear();
    started = {.error = static_cast<std::uint32_t>(error.code().value())};
  }
  head_.send(started);
}

std::optional<std::filesystem::path> NodeAgent::write_last_fault(const std::string& report) try {
  const std::filesystem::path file = local_.folder() / "last-fault.json";
  write_report(file, report);
  return file;
} catch (const std::system_error& error) {
  err_ << "cox run: the report of the last fault cannot be written: " << error.what() << "\n" << std::flush;
  return std::nullopt;
}

void NodeAgent::report_ends() {
  for (std::size_t process = 0; process < members_.size(); ++process) {
    Member& member = members_[process];
    if (member.is_reported) continue;
    const auto end = member.child->end();
    if (!end) continue;
    member.is_reported = true;
    local_.keepers().serve();
    const std::filesystem::path report = local_.report(first_process_ + process);
    head_.send(ProcessEnded{.process = static_cast<std::uint16_t>(process),
                            .code = static_cast<std::uint8_t>(end->code),
                            .signal = static_cast<std::uint8_t>(end->signal),
                            .before_failure = !failure_is_noted_ || member.child->ended_before_failure(),
                            .kept_bytes = local_.keepers().bytes(),
                            .holds_memory = local_.keepers().holds_memory(),
                            .gpu_memory_is_lost = memory_is_lost(report),
                            .report = text_of_report(report, max_fault_report)});
  }
}

void NodeAgent::finish(const FinishNode& request) {
  const bool none_left = local_.end_leftovers([this] {
    head_.wait(descriptors(), std::chrono::milliseconds(10));
    forward_signals();
    answer_requests();
    return !head_.lost() && !head_.has_message();
  });
  if (!none_left) return;  // the world ends
  WorldKeepers& keepers = local_.keepers();
  NodeFinished finished;
  finished.keeps = keepers.was_used() || keepers.holds_memory();
  finished.progresses = std::exchange(has_run_, false) && keepers.end_run();
  if (request.gpu_memory_is_lost) keepers.lose_gpu_memory();
  finished.holds_memory = keepers.holds_memory();
  finished.kept_bytes = keepers.bytes();
  head_.send(finished);
}

// The head decides to which processes a signal is sent: to each once, although a launcher may send it to all agents.
void NodeAgent::forward_signals() {
  while (const auto signal = signals_.take()) {
    if (*signal == SIGTSTP) stop();
    if (!CaughtSignals::is_passed_on(*signal)) continue;
    if (CaughtSignals::requests_exit(*signal) && !head_.is_answered()) exit_signal_ = *signal;
    head_.send(NodeSignal{.number = static_cast<std::uint8_t>(*signal)});
  }
}

void NodeAgent::stop() {
  for (const Member& member : members_) member.child->send(SIGSTOP);
  signals_.stop();
  for (const Member& member : members_) member.child->send(SIGCONT);
}

void NodeAgent::answer_requests() {
  if (!control_) return;
  control_->answer([this](std::string_view request) -> std::string {
    if (request == Supervisor::status_request) return status();
    if (request == Supervisor::reload_request || request == WorldSupervisor::world_request)
      return "node " + std::to_string(options_.node) + ": the agent of node 0 at " + head_.address() +
             " leads the world; run this there\n";
    return "unknown request\n";
  });
}

std::string NodeAgent::status() const {
  std::string text = "program: " + local_.program() + ", node " + std::to_string(options_.node) + " of " +
                     std::to_string(options_.nodes) + ", led by node 0 at " + head_.address();
  if (!head_.is_connected()) return text + ", which cannot be reached yet\n";
  if (!runs()) return text + ", waits for the start of the world\n";
  std::string pids;
  for (const pid_t id : ids()) pids += (pids.empty() ? "" : ", ") + std::to_string(id);
  text += "\nprocesses " + std::to_string(first_process_) + " to " +
          std::to_string(first_process_ + members_.size() - 1) + " (" + pids + ")\n";
  const std::string kept = local_.keepers().to_string();
  return text + (kept.empty() ? "kept memory: none\n" : "kept memory:\n" + kept);
}

bool NodeAgent::runs() const {
  return std::ranges::any_of(members_, [](const Member& member) { return !member.is_reported; });
}

std::vector<pid_t> NodeAgent::ids() const {
  std::vector<pid_t> all;
  for (const Member& member : members_) all.push_back(member.child->id());
  return all;
}

std::vector<int> NodeAgent::descriptors() const {
  std::vector<int> all = local_.keepers().descriptors();
  all.push_back(signals_.descriptor());
  if (control_) all.push_back(control_->descriptor());
  return all;
}

}  // namespace cox::tools
