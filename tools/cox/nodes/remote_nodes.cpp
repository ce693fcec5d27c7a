#include <coxswain/tools/cox/nodes/remote_nodes.hpp>

#include <coxswain/collectives/discovery/rendezvous.hpp>
#include <coxswain/collectives/store/deadline_socket.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/tools/cox/byte_text.hpp>
#include <coxswain/tools/cox/exit_code.hpp>
#include <coxswain/tools/cox/supervisor/caught_signals.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>
#include <coxswain/tools/cox/version.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <numeric>
#include <system_error>
#include <utility>
#include <variant>

namespace cox::tools {
namespace {

using boost::asio::ip::tcp;
using std::chrono::steady_clock;

constexpr std::size_t most_signals = 1024;  // that the agents have received, and the head has not taken
constexpr std::chrono::seconds longest_end{5};

constexpr ProgramEnd lost_end{.code = static_cast<int>(ExitCode::WorldGone), .signal = 0, .is_lost = true};

tcp::endpoint own_endpoint(const NodeOptions& options) {
  boost::asio::io_context io;
  tcp::resolver resolver(io);
  boost::system::error_code error;
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      tcp::resolver::numeric_service | tcp::resolver::passive, error);
  if (error) throw std::system_error(error, "the host of --leader, " + options.host);
  const tcp::endpoint at = found.begin()->endpoint();
  if (at.address().is_loopback() && !cox::detail::is_loopback(options.host))
    throw std::system_error(std::make_error_code(std::errc::address_not_available),
                            "the host of --leader, " + options.host + ", has the address " + at.address().to_string() +
                                " on this node, where other nodes cannot connect; give its address in the network");
  return at;
}

}  // namespace

/// A process of another node.
class RemoteNodes::Process final : public WorldProcess {
 public:
  Process(RemoteNodes& nodes, Node& node, std::size_t process) : nodes_(nodes), node_(node), process_(process) {}

  [[nodiscard]] std::optional<ProgramEnd> end() noexcept override { return member().end; }
  void send(int signal) noexcept override {
    if (member().end || !node_.link) return;
    try {
      node_.link->send(
          SignalNode{.process = static_cast<std::uint16_t>(process_), .number = static_cast<std::uint8_t>(signal)});
    } catch (const std::exception&) {  // no memory: the processes of the node are killed when its connection ends
      node_.link->close();
      nodes_.lose(node_, "there is no memory for a message");
    }
  }
  [[nodiscard]] pid_t id() const noexcept override { return 0; }
  [[nodiscard]] std::string place() const override {
    const std::string node = "node " + std::to_string(node_.number) + " (" + node_.host + ")";
    return member().pid == 0 ? node : "pid " + std::to_string(member().pid) + " on " + node;
  }
  void note_failure() noexcept override {
    try {
      nodes_.note_failure(node_);
    } catch (const std::exception&) {  // no memory: of failures at the same time, the first one counts
      return;
    }
  }
  [[nodiscard]] bool ended_before_failure() const noexcept override { return member().before_failure; }

 private:
  [[nodiscard]] const Member& member() const noexcept { return node_.members[process_]; }

  RemoteNodes& nodes_;
  Node& node_;
  const std::size_t process_;
};

RemoteNodes::RemoteNodes(const NodeOptions& options, std::size_t own_processes, std::ostream& err)
    : options_(options),
      own_processes_(own_processes),
      err_(err),
      heartbeat_(settings().get<std::chrono::nanoseconds>("world.heartbeat")),
      silence_(settings().get<std::chrono::nanoseconds>("world.silence")),
      acceptor_(io_, max_node_hello, options_.identified_within,
                [this](const Link& link, NodeMessage message) { receive_hello(link, std::move(message)); }),
      last_heartbeat_(steady_clock::now()),
      running_since_(last_heartbeat_) {
  for (std::uint16_t node = 1; node < options_.nodes; ++node) {
    nodes_.emplace_back();
    nodes_.back().number = node;
  }
  const tcp::endpoint at = own_endpoint(options_);
  try {
    acceptor_.listen(at);
  } catch (const boost::system::system_error& error) {
    throw std::system_error(error.code(), "cannot listen for the other nodes at " +
                                              detail::host_and_port(at.address().to_string(), at.port()));
  }
  send_heartbeats();
}

RemoteNodes::~RemoteNodes() {
  acceptor_.close();
  for (Node& node : nodes_)
    if (const Link link = std::exchange(node.link, nullptr)) link->close();
}

std::string RemoteNodes::host() const { return acceptor_.endpoint().address().to_string(); }

void RemoteNodes::wait(const std::vector<int>& descriptors, std::optional<std::chrono::nanoseconds> longest) {
  wait_.wait(descriptors, longest);
}

bool RemoteNodes::are_present() const noexcept {
  return std::ranges::all_of(nodes_, [](const Node& node) { return node.link != nullptr; });
}

std::string RemoteNodes::missing() const {
  std::string names;
  std::size_t count = 0;
  for (const Node& node : nodes_)
    if (!node.link) {
      names += (count == 0 ? ": " : ", ") + name(node);
      ++count;
    }
  return std::to_string(count) + " of " + std::to_string(options_.nodes) + " nodes at " +
         detail::host_and_port(host(), acceptor_.endpoint().port()) + names;
}

std::size_t RemoteNodes::processes() const noexcept {
  return std::accumulate(nodes_.begin(), nodes_.end(), own_processes_,
                         [](std::size_t sum, const Node& node) { return sum + node.processes; });
}

ProcessRange RemoteNodes::processes_of(std::uint16_t node) const noexcept {
  if (node == 0) return {.first = 0, .count = own_processes_};
  ProcessRange range{.first = own_processes_, .count = nodes_[node - 1U].processes};
  for (std::size_t before = 0; before + 1 < node; ++before) range.first += nodes_[before].processes;
  return range;
}

void RemoteNodes::start(StartNode run, const std::function<std::filesystem::path(std::size_t process)>& report) {
  run.processes = static_cast<std::uint16_t>(processes());
  for (Node& node : nodes_) {
    const ProcessRange range = processes_of(node.number);
    node.members.clear();
    for (std::size_t process = 0; process < range.count; ++process)
      node.members.push_back({.report = report(range.first + process)});
    node.in_run = true;
    node.has_started = node.failure_is_noted = node.knows_failure = node.finishes = false;
    node.start_error = 0;
    node.finished.reset();
    run.first_process = static_cast<std::uint16_t>(range.first);
    node.link->send(run);
  }
}

void RemoteNodes::add_to(WorldRun& world) {
  for (Node& node : nodes_)
    for (std::size_t process = 0; process < node.members.size(); ++process)
      world.add(std::make_unique<Process>(*this, node, process), node.members[process].report);
}

void RemoteNodes::require_started() const {
  for (const Node& node : nodes_)
    if (node.start_error != 0)
      throw std::system_error(static_cast<int>(node.start_error), std::generic_category(), name(node));
}

void RemoteNodes::kill_run() {
  for (Node& node : nodes_)
    for (std::size_t process = 0; process < node.members.size(); ++process) Process(*this, node, process).send(SIGKILL);
}

bool RemoteNodes::have_ended() const noexcept {
  return std::ranges::all_of(nodes_, [](const Node& node) {
    return std::ranges::all_of(node.members, [](const Member& member) { return member.end.has_value(); });
  });
}

bool RemoteNodes::gpu_memory_is_lost() const noexcept {
  return std::ranges::any_of(nodes_, [](const Node& node) {
    return std::ranges::any_of(node.members, [](const Member& member) { return member.gpu_memory_is_lost; });
  });
}

void RemoteNodes::begin_finish(bool gpu_memory_is_lost) {
  for (Node& node : nodes_) {
    node.finishes = node.in_run && node.link != nullptr;
    node.finished.reset();  // of an earlier try to start the next run
    if (node.finishes) node.link->send(FinishNode{.gpu_memory_is_lost = gpu_memory_is_lost});
  }
}

std::optional<RemoteNodes::Finish> RemoteNodes::finish() const noexcept {
  Finish all;
  for (const Node& node : nodes_) {
    if (node.finishes && !node.finished) return std::nullopt;
    if (!node.finished || !node.finished->keeps) continue;
    all.keeps = true;
    all.progresses = all.progresses && node.finished->progresses;
  }
  return all;
}

std::optional<RemoteNodes::Signal> RemoteNodes::take_signal() {
  if (signals_.empty()) return std::nullopt;
  const Signal signal = signals_.front();
  signals_.pop_front();
  return signal;
}

void RemoteNodes::end(int code, const std::string& text) {
  end_ = EndNode{.code = static_cast<std::uint8_t>(code), .text = text};
  for (const Node& node : nodes_)
    if (node.link) node.link->send(*end_);
  const auto until = steady_clock::now() + longest_end;
  const auto any = [this] {
    return std::ranges::any_of(nodes_, [](const Node& node) { return node.link != nullptr; });
  };
  while (any() && steady_clock::now() < until) wait({}, until - steady_clock::now());
}

bool RemoteNodes::hold_memory() const noexcept {
  return std::ranges::any_of(nodes_, [](const Node& node) { return node.holds_memory; });
}

std::uint64_t RemoteNodes::kept_bytes() const noexcept {
  return std::accumulate(nodes_.begin(), nodes_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Node& node) { return sum + node.kept_bytes; });
}

std::string RemoteNodes::to_string() const {
  std::string text;
  for (const Node& node : nodes_) {
    text += "node " + std::to_string(node.number) + ": ";
    if (!node.link) {
      text += (node.host.empty() ? std::string() : node.host + ", ") + "not connected\n";
      continue;
    }
    text += node.host + ", agent pid " + std::to_string(node.pid) + ", " + std::to_string(node.processes) +
            (node.processes == 1 ? " process" : " processes");
    std::string pids;
    for (const Member& member : node.members)
      if (node.in_run && member.pid != 0) pids += (pids.empty() ? " (" : ", ") + std::to_string(member.pid);
    text += pids + (pids.empty() ? "" : ")");
    text += node.holds_memory ? ", " + short_byte_count(node.kept_bytes) + " of kept memory\n" : "\n";
  }
  return text;
}

std::string RemoteNodes::name(const Node& node) {
  const std::string number = "node " + std::to_string(node.number);
  return node.host.empty() ? number : number + " (" + node.host + ")";
}

std::string RemoteNodes::objection_to(const NodeHello& hello) const {
  if (hello.protocol != node_protocol_version)
    return "its protocol is version " + std::to_string(hello.protocol) + ", that of node 0 is version " +
           std::to_string(node_protocol_version);
  if (!detail::tokens_equal(hello.token, options_.token)) return "its token is not that of this world";
  if (hello.library != version)
    return "it is cox " + printable(hello.library) + ", node 0 has cox " + std::string(version);
  if (hello.nodes != options_.nodes)
    return "it expects " + std::to_string(hello.nodes) + " nodes, node 0 expects " + std::to_string(options_.nodes);
  if (hello.node == 0 || hello.node >= options_.nodes)
    return hello.node == 0 ? "it is node 0, too" : "there is no node " + std::to_string(hello.node);
  if (hello.processes == 0 || hello.host.empty()) return "it has no processes, or no host name";
  const Node& node = nodes_[hello.node - 1U];
  if (node.processes != 0 && node.processes != hello.processes)
    return name(node) + " had " + std::to_string(node.processes) + " processes before, and has " +
           std::to_string(hello.processes) + " now";
  if (processes() - node.processes + hello.processes > max_world_processes)
    return "a world has at most " + std::to_string(max_world_processes) + " processes";
  return {};
}

void RemoteNodes::receive_hello(const Link& link, NodeMessage message) {
  const auto* const hello = std::get_if<NodeHello>(&message);
  if (hello == nullptr) return link->close();  // another program
  if (const std::string objection = objection_to(*hello); !objection.empty()) {
    boost::system::error_code ignored;
    err_ << "cox run: refuses an agent at " << link->socket().remote_endpoint(ignored).address().to_string() << ": "
         << objection << "\n"
         << std::flush;
    link->send(NodeRejected{.text = objection});
    return link->close();
  }
  if (end_) {
    link->send(*end_);
    return link->close();
  }
  Node& node = nodes_[hello->node - 1U];
  if (node.link) {
    link->send(NodeRejected{.text = name(node) + " has joined already: its agent has pid " + std::to_string(node.pid),
                            .may_retry = true});
    return link->close();
  }
  node.link = link;
  node.host = printable(hello->host);
  node.pid = hello->pid;
  node.processes = hello->processes;
  node.silence = {};
  node.in_run = false;
  node.holds_memory = false;
  node.kept_bytes = 0;
  link->restart({.received =
                     [this, &node](const NodeMessage& next) {
                       if (const std::string fault = receive(node, next); !fault.empty())
                         lose(node, "it sent a message that is not valid: " + fault);
                     },
                 .ended = [this, &node](const std::string& why) { lose(node, "its connection has ended: " + why); }});
  link->send(NodeHeartbeat{});  // the agent is accepted
}

std::string RemoteNodes::receive(Node& node, const NodeMessage& message) {
  if (std::holds_alternative<NodeHeartbeat>(message)) return {};
  if (const auto* const signal = std::get_if<NodeSignal>(&message)) {
    if (!CaughtSignals::is_passed_on(signal->number))
      return "signal " + std::to_string(signal->number) + ", which is not passed on";
    if (signals_.size() >= most_signals) return "too many signals";
    signals_.push_back({.node = node.number, .number = signal->number});
    return {};
  }
  if (!node.in_run) return "it takes part in no run";
  if (const auto* const started = std::get_if<NodeStarted>(&message)) return note_started(node, *started);
  if (const auto* const ended = std::get_if<ProcessEnded>(&message)) return note_ended(node, *ended);
  if (std::holds_alternative<FailureNoted>(message) && node.failure_is_noted &&
      !std::exchange(node.knows_failure, true))
    return {};
  const auto* const finished = std::get_if<NodeFinished>(&message);
  if (finished == nullptr || !node.finishes || node.finished) return "it is not expected";
  node.finished = *finished;
  node.holds_memory = finished->holds_memory;
  node.kept_bytes = finished->kept_bytes;
  return {};
}

std::string RemoteNodes::note_started(Node& node, const NodeStarted& message) const {
  if (node.has_started || (message.error == 0 && message.pids.size() != node.members.size()))
    return "it is not expected, or has not a pid for each process";
  node.has_started = true;
  node.start_error = message.error;
  for (std::size_t process = 0; process < node.members.size(); ++process) {
    if (message.error == 0)
      node.members[process].pid = message.pids[process];
    else
      node.members[process].end = ProgramEnd{.code = 127};
  }
  return {};
}

std::string RemoteNodes::note_ended(Node& node, const ProcessEnded& message) {
  if (message.process >= node.members.size() || node.members[message.process].end) return "no such process runs";
  Member& member = node.members[message.process];
  try {
    if (!message.report.empty()) write_report(member.report, message.report);
  } catch (const std::system_error& error) {
    err_ << "cox run: the fault report of process " << processes_of(node.number).first + message.process << " on "
         << name(node) << " cannot be written: " << error.what() << "\n"
         << std::flush;
  }
  member.gpu_memory_is_lost = message.gpu_memory_is_lost;
  member.before_failure = message.before_failure;
  member.end = ProgramEnd{.code = message.code, .signal = message.signal};
  node.holds_memory = message.holds_memory;
  node.kept_bytes = message.kept_bytes;
  return {};
}

void RemoteNodes::lose(Node& node, const std::string& why) {
  const Link link = std::exchange(node.link, nullptr);
  if (link == nullptr) return;
  link->close();
  if (!end_) err_ << "cox run: " << name(node) << " is lost: " << why << "\n" << std::flush;
  for (Member& member : node.members)
    if (!member.end) {
      member.end = lost_end;
      member.before_failure = !node.knows_failure;  // if it may be so, its loss explains the failure of others
    }
  node.in_run = node.finishes = node.holds_memory = false;
  node.finished.reset();
  node.kept_bytes = 0;
}

void RemoteNodes::note_failure(Node& node) {
  if (std::exchange(node.failure_is_noted, true) || !node.in_run || !node.link) return;
  node.link->send(FailureNoted{});
}

void RemoteNodes::send_heartbeats() {
  const Time now = steady_clock::now();
  // After a pause of this process, the others may have spoken without being heard.
  if (now - last_heartbeat_ > 2 * heartbeat_) running_since_ = now;
  last_heartbeat_ = now;
  for (Node& node : nodes_) {
    if (!node.link) continue;
    node.link->send(NodeHeartbeat{});
    if (node.silence.is_too_long(name(node), std::max(node.link->last_heard(), running_since_), true, silence_, now))
      lose(node, "it has been silent for " +
                     format_duration(std::chrono::floor<std::chrono::milliseconds>(now - node.link->last_heard())) +
                     " (setting world.silence)");
  }
  timer_.expires_after(heartbeat_);
  timer_.async_wait([this](const boost::system::error_code& failed) {
    if (!failed) send_heartbeats();
  });
}

}  // namespace cox::tools
