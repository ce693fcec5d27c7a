// A world on several nodes in which an agent, or its connection, does not do what is expected. The test itself plays
// some of the agents.
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/tools/agent.hpp>
#include <coxswain/tests/tools/node_peer.hpp>
#include <coxswain/tests/tools/nodes.hpp>
#include <coxswain/tests/tools/scratch_folder.hpp>

#include <coxswain/tools/cox/nodes/node_message.hpp>

#include <boost/asio/io_context.hpp>

#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using cox::test::Agent;
using cox::test::ask;
using cox::test::ended_well;
using cox::test::NodePeer;
using cox::test::Nodes;
using cox::test::PlayedHead;
using cox::test::PlayedNode;
using cox::test::Words;
using namespace cox::tools;

namespace {

constexpr const char* ecc_report =
    R"({"name": "CUDA_ERROR_ECC_UNCORRECTABLE", "code": 214, "call": "launch", "suspects": []})";

/// The agent of node 1, with a head that the test plays.
class OneAgent {
 public:
  explicit OneAgent(const std::string& script, const Words& options = {}) : nodes_({1, 1}, script, options) {
    nodes_.set_port(head_.port());
    nodes_.start(1);
  }
  PlayedHead& head() { return head_; }
  Agent& agent() { return nodes_.agent(1); }
  Nodes& nodes() { return nodes_; }

 private:
  PlayedHead head_;
  Nodes nodes_;
};

#if !defined(__SANITIZE_ADDRESS__)  // which needs descriptors for checks of its own
// Limits the descriptors that the process may open, from now on, to so many.
void limit_descriptors(pid_t process, int more) {
  rlimit limit{};
  REQUIRE(prlimit(process, RLIMIT_NOFILE, nullptr, &limit) == 0);
  limit.rlim_cur = 0;
  for (; more >= 0; ++limit.rlim_cur)
    if (!std::filesystem::is_symlink("/proc/" + std::to_string(process) + "/fd/" + std::to_string(limit.rlim_cur)))
      --more;
  --limit.rlim_cur;
  REQUIRE(prlimit(process, RLIMIT_NOFILE, &limit, nullptr) == 0);
}
#endif

const ProcessEnded with_memory{.code = 86, .before_failure = true, .kept_bytes = 4096, .holds_memory = true};
const NodeFinished keeps{.keeps = true, .progresses = true, .holds_memory = true, .kept_bytes = 4096};

}  // namespace

TEST_CASE("GPU memory is lost on all nodes, also if the report of another node cannot be written") {
  Nodes nodes({1, 1},
              "[ $COX_RESTART = 1 ] && exit ${COX_LAST_FAULT+4}; mkdir $(dirname $COX_FAULT_REPORT)/fault-1.json; "
              "echo > $D/ready; exit 0");
  nodes.start_head();
  boost::asio::io_context io;
  PlayedNode node(io, nodes.port(), 1, 2);
  static_cast<void>(node.start_run());
  nodes.await({"0/ready"});
  node.send(ProcessEnded{.code = 86, .before_failure = true, .gpu_memory_is_lost = true, .report = ecc_report});
  CHECK(node.receive_a<FinishNode>().gpu_memory_is_lost);
  node.send(NodeFinished{});
  static_cast<void>(node.start_run());
  node.send(ProcessEnded{});
  CHECK(node.receive_a<EndNode>().code == 0);
  node.close();
  CHECK(nodes.agent(0).end() == 0);
  CHECK_THAT(nodes.err(),
             ContainsSubstring("cox run: the fault report of process 1 on node 1 (host1) cannot be written: "));
}

TEST_CASE("A world for which --reload is requested while it waits for nodes is started once") {
  Nodes nodes({1, 1}, "echo >> $OUT/runs$P");
  nodes.start_head();
  CHECK_THAT(ask({"run", "--reload"}, nodes.agent(0)),
             ContainsSubstring("the processes wait for 1 of 2 nodes at 127.0.0.1:"));
  nodes.start(1);
  CHECK(nodes.codes() == ended_well);
  CHECK(nodes.text("runs0") == "\n");
}

TEST_CASE("A node that is lost while the others end is not what ended the world") {
  Nodes nodes({1, 1}, "[ $P = 0 ] && await ready && exit 3; trap 'echo > $D/term' TERM; echo > $D/ready; idle",
              {"--grace", "10ms"});
  nodes.start();
  nodes.await({"0/term"});
  nodes.agent(1).send(SIGKILL);
  CHECK(nodes.agent(0).end() == 3);
  CHECK_THAT(nodes.err(), ContainsSubstring(") is lost: ") && ContainsSubstring(" is lost with its node\n"));
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("If node 0 cannot open what a run needs, all agents end with its code, and say why") {
  Nodes nodes({1, 1}, "exit 0");
  nodes.start_head();
  limit_descriptors(nodes.agent(0).id(), 1);  // the connection of node 1
  nodes.start(1);
  CHECK(nodes.codes() == std::set<int>{126});
  CHECK_THAT(nodes.err(),
             ContainsSubstring("cox run: cannot start '/bin/sh': ") && ContainsSubstring("Too many open files"));
  CHECK_THAT(nodes.err(1), ContainsSubstring("cox run: node 0: cannot start '/bin/sh': ") &&
                               ContainsSubstring("Too many open files"));
}

TEST_CASE("If node 0 cannot open what a run needs, it tries again while memory is held") {
  Nodes nodes({1, 1}, "exit 0");
  nodes.start_head();
  boost::asio::io_context io;
  PlayedNode node(io, nodes.port(), 1, 2);
  static_cast<void>(node.start_run());
  node.send(with_memory);
  Agent& head = nodes.agent(0);
  static_cast<void>(node.receive_a<FinishNode>());
  limit_descriptors(head.id(), 0);
  node.send(keeps);
  static_cast<void>(node.receive_a<FinishNode>());
  head.wait_for("cannot start '/bin/sh': ");
  limit_descriptors(head.id(), 500);
  node.send(keeps);
  const auto run = node.start_run();
  CHECK(run.restart >= 2);
  node.send(ProcessEnded{});
  CHECK(node.receive_a<EndNode>().code == 0);
  node.close();
  CHECK(head.end() == 0);
}
#endif

TEST_CASE("An agent connects again until node 0 has sent its first message") {
  OneAgent one("exit 0");
  one.head().accept().close();
  one.head().accept().close();
  NodePeer head = one.head().accept();
  head.send(EndNode{.code = 5});
  CHECK(one.agent().end() == 5);
  CHECK(one.agent().err().empty());
}

TEST_CASE("An agent ends if node 0 accepts its connection and sends nothing") {
  OneAgent one("exit 0", {"--join-within", "2s"});
  const NodePeer head = one.head().accept();
  CHECK(one.agent().end() == 87);
  CHECK_THAT(one.agent().err(), ContainsSubstring(" cannot be reached within 2s: "));
}

TEST_CASE("An agent that node 0 has not answered yet ends by a signal") {
  for (const bool rejects : {true, false}) {
    OneAgent one("exit 0");
    NodePeer head = one.head().accept();
    one.agent().send(SIGTERM);
    CHECK(head.receive_a<NodeSignal>().number == SIGTERM);
    if (rejects) head.send(NodeRejected{.text = "another one is there", .may_retry = true});
    head.close();
    CHECK(one.agent().end() == 128 + SIGTERM);
  }
}

TEST_CASE("An agent that joins while the world ends gets the code of the world") {
  Nodes nodes({1, 1, 1}, "exit 0");
  nodes.start_head();
  boost::asio::io_context io;
  PlayedNode first(io, nodes.port(), 1, 3);
  PlayedNode second(io, nodes.port(), 2, 3);
  static_cast<void>(first.start_run());
  static_cast<void>(second.start_run());
  second.send(ProcessEnded{});
  second.close();
  nodes.agent(0).wait_for("node 2 (host2) is lost: ");
  first.send(ProcessEnded{});
  CHECK(first.receive_a<EndNode>().code == 0);
  PlayedNode late(io, nodes.port(), 2, 3);
  CHECK(late.receive_a<EndNode>().code == 0);
  CHECK_FALSE(late.receive());
  first.close();
  CHECK(nodes.agent(0).end() == 0);
}

TEST_CASE("Texts of node 0 are printed without control characters") {
  {
    OneAgent one("exit 0");
    one.head().accept().send(EndNode{.code = 9, .text = "a\x1b[2Jb\n"});
    CHECK(one.agent().end() == 9);
    CHECK(one.agent().err() == "cox run: a?[2Jb?\n");
  }
  OneAgent one("exit 0");
  one.head().accept().send(NodeRejected{.text = "a\x1b[2Jb"});
  CHECK(one.agent().end() == 2);
  CHECK_THAT(one.agent().err(), EndsWith(" refuses this one: a?[2Jb\n"));
}

TEST_CASE("A message that is not valid ends the connection of an agent that has joined") {
  Nodes nodes({1, 1, 1}, "exit 0");
  Agent& head = nodes.start_head();
  boost::asio::io_context io;
  const std::vector<NodeMessage> invalid{
      ProcessEnded{},          NodeStarted{},  NodeFinished{}, cox::test::hello_of(1, 3), NodeSignal{.number = SIGKILL},
      NodeSignal{.number = 0}, FailureNoted{}, EndNode{}};
  for (const NodeMessage& message : invalid) {
    CAPTURE(message.index());
    PlayedNode node(io, nodes.port(), 1, 3);
    node.send(message);
    CHECK_FALSE(node.receive());
  }
  PlayedNode garbage(io, nodes.port(), 1, 3);
  garbage.send_bytes(std::as_bytes(std::span("\x02\0\0\0\xff\xff", 6)));
  CHECK_FALSE(garbage.receive());
  nodes.start(1);
  nodes.start(2);
  CHECK(nodes.codes() == ended_well);
  CHECK_THAT(head.err(), ContainsSubstring("node 1 (host1) is lost: it sent a message that is not valid: "));
  CHECK(lines_of(head.err()) == std::ssize(invalid) + 2);
}

TEST_CASE("A message that is not valid in a run is the loss of the node") {
  const std::vector<std::vector<NodeMessage>> invalid{{NodeStarted{}},  // without pids
                                                      {NodeStarted{.pids = {1}}, NodeStarted{.pids = {1}}},
                                                      {ProcessEnded{.process = 1}},
                                                      {ProcessEnded{}, ProcessEnded{}},
                                                      {NodeFinished{}}};
  for (const auto& messages : invalid) {
    Nodes nodes({1, 1}, "exec sleep 1000", {"--grace", "0ms", "--restarts", "0"});
    nodes.start_head();
    boost::asio::io_context io;
    PlayedNode node(io, nodes.port(), 1, 2);
    static_cast<void>(node.receive_a<StartNode>());
    for (const NodeMessage& message : messages) node.send(message);
    nodes.agent(0).wait_for("node 1 (host1) is lost: it sent a message that is not valid: ");
  }
}

TEST_CASE("A message of node 0 that is not valid ends the agent") {
  for (const NodeMessage& message :
       {NodeMessage(NodeFinished{}), NodeMessage(SignalNode{.process = 1, .number = 15})}) {
    OneAgent one("exit 0");
    NodePeer head = one.head().accept();
    head.send(message);
    CHECK(one.agent().end() == 87);
    CHECK_THAT(one.agent().err(), ContainsSubstring("is lost: it sent a message that is not expected\n"));
  }
}

TEST_CASE("An agent sends SIGKILL to a process that ignores SIGTERM") {
  OneAgent one("trap '' TERM; echo > $D/ready; idle");
  NodePeer head = one.head().accept();
  head.send(StartNode{.processes = 1, .leader_port = 1, .run = "run"});
  CHECK(head.receive_a<NodeStarted>().pids.size() == 1);
  one.nodes().await({"0/ready"});
  head.send(FailureNoted{});
  head.send(SignalNode{.process = 0, .number = SIGTERM});
  head.send(SignalNode{.process = 0, .number = SIGKILL});
  static_cast<void>(head.receive_a<FailureNoted>());
  CHECK(head.receive_a<ProcessEnded>().signal == SIGKILL);
  head.send(EndNode{});
  CHECK(one.agent().end() == 0);
}

TEST_CASE("An agent answers and passes on signals while it ends what its processes have left") {
  OneAgent one("sleep 1000 & echo $! > $D/draft; mv $D/draft $D/left; exec " COX_KEPT_WORKER
               " in_place 1 0 $OUT/found");
  NodePeer head = one.head().accept();
  head.send(StartNode{.processes = 1, .leader_port = 1, .run = "run"});
  static_cast<void>(head.receive_a<NodeStarted>());
  CHECK(head.receive_a<ProcessEnded>().holds_memory);
  const auto left = static_cast<pid_t>(std::stol(one.nodes().text("0/left")));
  // The agent cannot reap a process that another one traces.
  if (ptrace(PTRACE_SEIZE, left, nullptr, nullptr) != 0) {
    WARN("no permission to trace a process");
    return;
  }
  head.send(FinishNode{});
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(left), &info, WEXITED | WNOWAIT) == 0);  // the agent has killed it
  CHECK_THAT(ask({"run", "--status"}, one.agent()), ContainsSubstring("node 1 of 2, led by node 0"));
  one.agent().send(SIGTERM);
  CHECK(head.receive_a<NodeSignal>().number == SIGTERM);
  REQUIRE(waitpid(left, nullptr, 0) == left);
  CHECK(head.receive_a<NodeFinished>().holds_memory);
  head.send(EndNode{});
  CHECK(one.agent().end() == 0);
}

TEST_CASE("A process of another node that does not end can be left by a signal") {
  Nodes nodes({1, 1, 1}, "exit 0");
  Agent& head = nodes.start_head();
  boost::asio::io_context io;
  PlayedNode first(io, nodes.port(), 1, 3);
  PlayedNode second(io, nodes.port(), 2, 3);
  static_cast<void>(first.start_run());
  static_cast<void>(second.start_run());
  first.send(with_memory);
  second.send(ProcessEnded{});
  for (PlayedNode* const node : {&first, &second}) {
    static_cast<void>(node->receive_a<FinishNode>());
    node->send(keeps);
  }
  static_cast<void>(first.start_run());
  static_cast<void>(second.receive_a<StartNode>());
  second.send(NodeStarted{.error = ENOENT});
  CHECK(first.receive_a<SignalNode>().number == SIGKILL);
  CHECK_THAT(ask({"run", "--status"}, head), ContainsSubstring("wait for their restart\n"));
  head.send(SIGTERM);
  for (PlayedNode* const node : {&first, &second}) {
    CHECK(node->receive_a<EndNode>().code == 127);
    node->close();
  }
  CHECK(head.end() == 127);
}

TEST_CASE("A node whose agent is killed while it holds kept memory has none, and the world continues") {
  Nodes nodes({1, 1}, "exit 0");
  Agent& head = nodes.start_head();
  boost::asio::io_context io;
  PlayedNode node(io, nodes.port(), 1, 2);
  static_cast<void>(node.start_run());
  node.send(with_memory);
  static_cast<void>(node.receive_a<FinishNode>());
  node.send(keeps);
  head.wait_for("restart 1 of all processes with 4.10 kB of kept memory\n");
  static_cast<void>(node.start_run());
  CHECK_THAT(ask({"run", "--status"}, head), ContainsSubstring("4.10 kB of kept memory"));
  node.close();
  head.wait_for("process 1 is lost with its node; restart 2 of all processes in ");
  head.wait_for("waits for 1 of 2 nodes at ");
  CHECK_THAT(ask({"run", "--status"}, head), !ContainsSubstring("4.10 kB of kept memory"));
  PlayedNode next(io, nodes.port(), 1, 2);
  CHECK(next.start_run().restart == 2);
  next.send(ProcessEnded{});
  CHECK(next.receive_a<EndNode>().code == 0);
  next.close();
  CHECK(head.end() == 0);
}
