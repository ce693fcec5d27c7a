// A world on several nodes: cox run --nodes, with an agent for each node on this host.
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/variable.hpp>
#include <coxswain/tests/tools/agent.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tests/tools/nodes.hpp>
#include <coxswain/tests/tools/scratch_folder.hpp>
#include <coxswain/tests/tools/shell.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using cox::test::Agent;
using cox::test::ask;
using cox::test::await_end;
using cox::test::ended_well;
using cox::test::Nodes;
using cox::test::ScratchFolder;
using cox::test::secret;
using cox::test::Variable;
using cox::test::Words;
using cox::test::words_in;
using cox::tools::Command;
using cox::tools::EnvironmentChanges;

TEST_CASE("Agents on several nodes start the processes of one world") {
  Nodes nodes({2, 1, 3},
              "echo $COX_WORLD_PROCESSES $COX_WORLD_LOCAL_PROCESS $COX_WORLD_LOCAL_PROCESSES $COX_WORLD_RESTART "
              "$COX_RESTART $([ -S $COX_KEEPER ] && basename $COX_KEEPER) ${COX_LAST_FAULT-none} "
              "$(basename $COX_FAULT_REPORT) $COX_WORLD_TOKEN $COX_WORLD_RUN $COX_WORLD > $OUT/words$P; "
              "[ $P = 0 ] || await_gone 0");
  CHECK(nodes.start().codes() == ended_well);
  CHECK_THAT(nodes.err(), StartsWith("cox run: waits for 2 of 3 nodes at 127.0.0.1:" + std::to_string(nodes.port()) +
                                     ": node 1, node 2, at most 5min\n"));
  CHECK(cox::tools::lines_of(nodes.err()) == 1);
  CHECK(nodes.err(1).empty());
  const std::vector<std::string> first = words_in(nodes.text("words0"));
  REQUIRE(first.size() == 11);
  CHECK(first[8].size() == 32);
  CHECK(first[8] != secret);
  CHECK_THAT(first[10], StartsWith("leader://127.0.0.1:"));
  const std::vector<std::pair<std::string, std::string>> places{{"0", "2"}, {"1", "2"}, {"0", "1"},
                                                                {"0", "3"}, {"1", "3"}, {"2", "3"}};
  for (std::size_t process = 0; process < places.size(); ++process) {
    const auto& [local, count] = places[process];
    std::vector<std::string> expected{
        "6", local, count, "0", "0", "kept-" + local + "-1", "none", "fault-" + std::to_string(process) + ".json"};
    expected.insert(expected.end(), first.begin() + 8, first.end());
    CHECK(words_in(nodes.text("words" + std::to_string(process))) == expected);
  }
}

TEST_CASE("Processes on several nodes compute what one process computes") {
  const auto ranks_in = [](const std::string& text) {
    std::multiset<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      if (line.starts_with("rank ")) lines.insert(line);
    return lines;
  };
  const auto expected = ranks_in(
      cox::tools::Shell::run("COX_HOST_DEVICES=3 exec " + std::string(COX_WORLD_RANDOM_COLLECTIVES) + " work 3 2")
          .output);
  CHECK(expected.size() == 3);
  const Variable devices("COX_HOST_DEVICES", "1");
  Nodes nodes({1, 2}, std::string("exec ") + COX_WORLD_RANDOM_COLLECTIVES + " work 1 2 > $OUT/ranks$P");
  CHECK(nodes.start().codes() == ended_well);
  CHECK(ranks_in(nodes.text("ranks0") + nodes.text("ranks1") + nodes.text("ranks2")) == expected);
}

TEST_CASE("The exit code of all agents is that of the first process that failed on any node") {
  Nodes nodes({1, 2},
              "[ $P = 2 ] && await ready && exit 3; [ $P = 1 ] && exit 0; trap 'exit 5' TERM; echo > $D/ready; idle",
              {"--grace", "10ms"});
  CHECK(nodes.start().codes() == std::set<int>{3});
  const std::string err = nodes.err();
  CAPTURE(err);
  CHECK_THAT(err,
             ContainsSubstring("cox run: process 2 (pid " + words_in(nodes.text("0/pid2")).at(0) + " on node 1 ("));
  CHECK_THAT(err, ContainsSubstring(") of '/bin/sh' ended with code 3; the others have 10ms to end\n"));
  CHECK_THAT(err, ContainsSubstring(") of '/bin/sh' ended with code 5\n"));
}

TEST_CASE("Processes of all nodes that outlive the grace are ended") {
  Nodes nodes({1, 1, 1},
              "if [ $P = 1 ]; then await ready0; await ready2; exit 3; fi; "
              "[ $P = 2 ] && trap '' TERM; echo > $D/ready$P; exec sleep 1000",
              {"--grace", "10ms"});
  nodes.start();
  nodes.agent(0).wait_for("is sent SIGTERM");
  kill(static_cast<pid_t>(std::stol(nodes.text("0/pid2"))), SIGKILL);  // 5 s before the agent does it
  CHECK(nodes.codes() == std::set<int>{3});
  CHECK_THAT(nodes.err(), ContainsSubstring("process 0 (pid ") && ContainsSubstring("process 2 (pid ") &&
                              ContainsSubstring("has not ended within 10ms, and is sent SIGTERM\n"));
}

TEST_CASE("A world on several nodes is restarted as a whole, with the report of the fault that ended it") {
  Nodes nodes({1, 1},
              "echo $COX_WORLD_TOKEN > $D/token$P; "
              "if [ $COX_RESTART = 1 ]; then cat $COX_LAST_FAULT > $D/last$P; exit; fi; "
              "if [ $P = 0 ]; then trap 'exit 1' TERM; echo > $D/ready; idle; fi; await ready; "
              R"~(echo '{"name": "CUDA_ERROR_ASSERT", "code": 710, "call": )~"
              R"~("launch", "suspects": []}' > $COX_FAULT_REPORT; exit 86)~",
              {"--grace", "10ms"});
  CHECK(nodes.start().codes() == ended_well);
  CHECK_THAT(nodes.err(), ContainsSubstring("ended with code 86: CUDA_ERROR_ASSERT (710) from launch, no suspect; "
                                            "the others") &&
                              ContainsSubstring("; restart 1 of all processes in 1ms (limit 10 within 1h)\n"));
  CHECK_THAT(nodes.text("1/last0"), ContainsSubstring("CUDA_ERROR_ASSERT"));
  CHECK(nodes.text("1/last0") == nodes.text("1/last1"));
  CHECK(nodes.text("0/token0") == nodes.text("0/token1"));
  CHECK(nodes.text("0/token0") != nodes.text("1/token0"));
}

TEST_CASE("When a process of another node is killed, the others are notified and end, and the world is restarted") {
  const ScratchFolder folder;
  Nodes nodes({1, 1, 1}, Words{"--on", "signal"}, Words{COX_WORLD_MEMBER, folder.path()});
  CHECK(nodes.start().codes() == ended_well);
  CAPTURE(nodes.err());
  CHECK(folder.text("1") == "sum\nsum\n");
  for (const char* other : {"0", "2"})
    CHECK_THAT(folder.text(other), StartsWith("sum\n") && ContainsSubstring("process 1") && EndsWith("\nsum\n"));
  CHECK_THAT(nodes.err(), ContainsSubstring("process 1 was ended by signal 9 (Killed); restart 1 of all processes"));
}

TEST_CASE("A node whose agent is killed has failed, and another agent of it takes part in the restart") {
  Nodes nodes({1, 2, 1}, "echo > $D/ready$P; [ $COX_RESTART = 1 ] && exit 0; trap 'exit 1' TERM; idle",
              {"--grace", "0ms"});
  nodes.start();
  nodes.await({"0/ready0", "0/ready1", "0/ready2", "0/ready3"});
  nodes.agent(1).send(SIGKILL);
  nodes.agent(0).wait_for("waits for 1 of 3 nodes at ");
  await_end(nodes.text("0/pid1"));  // the processes have not outlived it
  nodes.start(1);
  CHECK(nodes.codes() == ended_well);
  const std::string err = nodes.err();
  CAPTURE(err);
  CHECK_THAT(err, ContainsSubstring(") is lost: its connection has ended: ") && ContainsSubstring("process 1 (pid ") &&
                      ContainsSubstring("process 2 (pid ") && ContainsSubstring(" is lost with its node") &&
                      ContainsSubstring("process 1 is lost with its node; restart 1 of all processes in 1ms") &&
                      ContainsSubstring(", at most 5min\n"));
  CHECK_FALSE(nodes.text("1/ready3").empty());
}

TEST_CASE("A node that does not come back in time ends the world, and is named") {
  Nodes nodes({1, 1, 1}, "echo > $D/ready$P; exec sleep 1000", {"--grace", "0ms", "--join-within", "2s"});
  nodes.start();
  nodes.await({"0/ready0", "0/ready1", "0/ready2"});
  nodes.agent(2).send(SIGKILL);
  CHECK(nodes.agent(0).end() == 87);
  CHECK(nodes.agent(1).end() == 87);
  const std::string end = "cox run: the world ends, since these have not joined within 2s: 1 of 3 nodes at 127.0.0.1:";
  CHECK_THAT(nodes.err(), ContainsSubstring(end) && ContainsSubstring(": node 2 ("));
  CHECK_THAT(nodes.err(1), ContainsSubstring(end) && ContainsSubstring(": node 2 ("));
}

TEST_CASE("A node that never comes ends the world, and an agent without node 0 ends") {
  Nodes nodes({1, 1, 1}, "exit 0", {"--join-within", "2s"});
  nodes.start_head();
  nodes.start(1);
  CHECK(nodes.codes() == std::set<int>{87});
  CHECK_THAT(nodes.err(), ContainsSubstring("1 of 3 nodes at ") && ContainsSubstring(": node 2\n"));
  Agent& alone = nodes.start(2);  // the port is closed now
  CHECK(alone.end() == 87);
  CHECK_THAT(alone.err(), ContainsSubstring(" cannot be reached within 2s: Connection refused\n"));
}

TEST_CASE("When the agent of node 0 is killed, the others kill their processes and end with code 87") {
  Nodes nodes({1, 1, 1}, "echo > $D/ready$P; trap '' TERM; exec sleep 1000");
  nodes.start();
  nodes.await({"0/ready0", "0/ready1", "0/ready2"});
  nodes.agent(0).send(SIGKILL);
  for (const std::size_t node : {1U, 2U}) {
    CHECK(nodes.agent(node).end() == 87);
    CHECK_THAT(nodes.err(node), ContainsSubstring("cox run: the agent of node 0 at 127.0.0.1:") &&
                                    ContainsSubstring("is lost: its connection has ended: ") &&
                                    ContainsSubstring("; the processes of this node are killed\n"));
    await_end(nodes.text("0/pid" + std::to_string(node)));
  }
}

TEST_CASE("An agent that is silent is lost, and ends when it finds that") {
  const Variable heartbeat("COX_WORLD_HEARTBEAT", "20ms");
  const Variable silence("COX_WORLD_SILENCE", "2s");
  Nodes nodes({1, 1}, "echo > $D/ready$P; exec sleep 1000", {"--grace", "0ms", "--restarts", "0"});
  nodes.start();
  nodes.await({"0/ready0", "0/ready1"});
  nodes.agent(1).send(SIGSTOP);
  CHECK(nodes.agent(0).end() == 87);
  CHECK_THAT(nodes.err(), ContainsSubstring(") is lost: it has been silent for ") &&
                              ContainsSubstring("s (setting world.silence)\n"));
  nodes.agent(1).send(SIGCONT);
  CHECK(nodes.agent(1).end() == 87);
  await_end(nodes.text("0/pid1"));
}

TEST_CASE("When the agent of node 0 is silent, the others end") {
  const Variable heartbeat("COX_WORLD_HEARTBEAT", "20ms");
  const Variable silence("COX_WORLD_SILENCE", "2s");
  Nodes nodes({1, 1}, "echo > $D/ready$P; exec sleep 1000", {"--grace", "0ms", "--restarts", "0"});
  nodes.start();
  nodes.await({"0/ready0", "0/ready1"});
  nodes.agent(0).send(SIGSTOP);
  CHECK(nodes.agent(1).end() == 87);
  CHECK_THAT(nodes.err(1), ContainsSubstring("is lost: it has been silent for "));
  nodes.agent(0).send(SIGCONT);
  CHECK(nodes.agent(0).end() == 87);
}

TEST_CASE("An agent with another token, or of another world, is refused, and the world starts without it") {
  Nodes nodes({1, 1}, "exit 0");
  nodes.start_head();
  Agent& other = nodes.start(1, {{"COX_WORLD_TOKEN", "ff112233445566778899aabbccddeeff"}});
  CHECK(other.end() == 2);
  CHECK_THAT(other.err(), ContainsSubstring(" refuses this one: its token is not that of this world\n"));
  const auto refused = [&](const std::string& count, const std::string& node) {
    Agent agent({"run", "--nodes", count, "--node", node, "--leader", "127.0.0.1:" + std::to_string(nodes.port()), "--",
                 "true"},
                {{"COX_WORLD_TOKEN", secret}});
    CHECK(agent.end() == 2);
    return agent.err();
  };
  CHECK_THAT(refused("3", "1"), ContainsSubstring("it expects 3 nodes, node 0 expects 2\n"));
  CHECK_THAT(refused("3", "2"), ContainsSubstring("it expects 3 nodes, node 0 expects 2\n"));
  nodes.start(1);
  CHECK(nodes.codes() == ended_well);
  CHECK_THAT(nodes.err(), ContainsSubstring("cox run: refuses an agent at 127.0.0.1: its token is not that of this "
                                            "world\n"));
}

TEST_CASE("A second agent of a node waits until the first one is lost, and needs as many processes") {
  Nodes nodes({1, 1}, "[ $P = 1 ] && [ $COX_RESTART = 0 ] && { echo > $D/ready; exec sleep 1000; }; exit 0",
              {"--grace", "0ms"});
  nodes.start();
  nodes.await({"0/ready"});
  const Words second{"run", "--nodes", "2", "--node", "1", "--leader", "127.0.0.1:" + std::to_string(nodes.port())};
  const auto start = [&](Words options) {
    options.insert(options.begin(), second.begin(), second.end());
    options.insert(options.end(), {"--", "true"});
    return std::make_unique<Agent>(options, EnvironmentChanges{{"COX_WORLD_TOKEN", secret}});
  };
  const std::string first = ") has joined already: its agent has pid " + std::to_string(nodes.agent(1).id());
  const auto late = start({"--join-within", "2s"});
  CHECK(late->end() == 87);
  CHECK_THAT(late->err(), ContainsSubstring(first + "; waits until it is lost, at most 2s\n") &&
                              ContainsSubstring(" cannot be reached within 2s: node 1 (") && EndsWith(first + "\n"));
  const auto other = start({"--processes", "2"});
  CHECK(other->end() == 2);
  CHECK_THAT(other->err(), ContainsSubstring(") had 1 processes before, and has 2 now\n"));
  const auto next = start({});
  next->wait_for(first);
  nodes.agent(1).send(SIGKILL);
  CHECK(next->end() == 0);
  CHECK(nodes.agent(0).end() == 0);
}

TEST_CASE("A connection that sends no message of an agent ends, and nothing else does") {
  Nodes nodes({1, 1}, "exit 0");
  nodes.start_head();
  boost::asio::io_context io;
  const boost::asio::ip::tcp::endpoint head(boost::asio::ip::address_v4::loopback(), nodes.port());
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), std::string("\xff\xff\xff\xff", 4), std::string(4, '\0'),
        std::string("\x05\0\0\0\x01OOXN", 9), std::string("\x01\0\0\0\x06", 5) /* a heartbeat */}) {
    boost::asio::ip::tcp::socket socket(io);
    socket.connect(head);
    boost::asio::write(socket, boost::asio::buffer(bytes));
    char received = 0;
    boost::system::error_code ended;
    socket.read_some(boost::asio::buffer(&received, 1), ended);  // blocks until the head has closed it
    CHECK(ended);
  }
  boost::asio::ip::tcp::socket silent(io);
  silent.connect(head);
  nodes.start(1);
  CHECK(nodes.codes() == ended_well);
  CHECK(cox::tools::lines_of(nodes.err()) == 1);
}

TEST_CASE("A signal to any agent reaches all processes of the world once, which is then not restarted") {
  for (const std::vector<std::size_t>& to : {std::vector<std::size_t>{0}, {1}, {0, 1, 2}}) {
    CAPTURE(to);
    // The first process to be sent it leaves the others time to be sent it again.
    Nodes nodes(
        {1, 1, 1},
        "trap 'echo term >> $OUT/got$P; kill -9 $! 2> /dev/null; await got0; await got1; await got2; exit 86' TERM; "
        "D=$OUT; sleep 60 & echo > $D/ready$P; wait");
    nodes.start();
    nodes.await({"ready0", "ready1", "ready2"});
    for (const std::size_t node : to) nodes.agent(node).send(SIGTERM);
    CHECK(nodes.codes() == std::set<int>{86});
    CHECK(cox::tools::lines_of(nodes.err()) == 1);
    for (const char* got : {"got0", "got1", "got2"}) CHECK(nodes.text(got) == "term\n");
  }
}

TEST_CASE("A signal to an agent that waits for other nodes ends all agents") {
  Nodes nodes({1, 1, 1}, "exit 0");
  nodes.start_head();
  nodes.start(1);
  while (ask({"run", "--status"}, nodes.agent(0)).find(", agent pid ") == std::string::npos) {
    REQUIRE_FALSE(nodes.agent(0).has_ended());
    cox::test::pause_shortly();
  }
  nodes.agent(1).send(SIGTERM);
  CHECK(nodes.codes() == std::set<int>{128 + SIGTERM});
}

TEST_CASE("A program that cannot be run on a node ends the world with 127") {
  const ScratchFolder folder;
  const std::string program = folder.path() + "/program";
  Nodes nodes({1, 1}, Words{}, Words{"/bin/sh", "-c", "exec sleep 1000"});
  nodes.start_head();
  Agent agent(
      {"run", "--nodes", "2", "--node", "1", "--leader", "127.0.0.1:" + std::to_string(nodes.port()), "--", program},
      {{"COX_WORLD_TOKEN", secret}});
  CHECK(agent.end() == 127);
  CHECK(nodes.codes() == std::set<int>{127});
  CHECK_THAT(nodes.err(), ContainsSubstring("cox run: cannot start '/bin/sh': node 1 (") &&
                              ContainsSubstring("): No such file or directory\n"));
  CHECK_THAT(agent.err(),
             StartsWith("cox run: cannot start '" + program +
                        "': No such file or directory\ncox run: node 0: cannot start '/bin/sh': node 1 ("));
}

TEST_CASE("Kept memory of the processes of several nodes has the agreed contents, whichever is killed") {
  const ScratchFolder folder;
  Nodes nodes({1, 1}, Words{"--restarts", "1000", "--on", "signal", "--grace", "500ms"},
              Words{COX_KEPT_WORLD_WORKER, "double", "5", "4", folder.path()});
  CHECK(nodes.start().codes() == ended_well);
  CAPTURE(nodes.err(), folder.text("0"), folder.text("1"));
  CHECK_THAT(nodes.err(), ContainsSubstring(" of kept memory\n"));
  std::istringstream found(folder.text("1"));
  std::uint64_t agreed = 0;
  for (std::string word; found >> word;)
    if (word == "agreed") found >> agreed;
  CHECK(agreed > 0);
}

TEST_CASE("The agents report the nodes, and what each runs") {
  Nodes nodes({1, 2}, "echo > $D/ready$P; trap 'exit 0' TERM; idle");
  nodes.start();
  nodes.await({"0/ready0", "0/ready1", "0/ready2"});
  const auto pid = [&](const char* process) { return words_in(nodes.text("0/pid" + std::string(process))).at(0); };
  CHECK_THAT(ask({"run", "--status"}, nodes.agent(0)),
             ContainsSubstring("program: /bin/sh, 3 processes on 2 nodes (" + pid("0") + " on this one), run for") &&
                 ContainsSubstring("node 1: ") &&
                 ContainsSubstring(", agent pid " + std::to_string(nodes.agent(1).id()) + ", 2 processes (" + pid("1") +
                                   ", " + pid("2") + ")\n"));
  CHECK_THAT(ask({"run", "--status"}, nodes.agent(1)),
             ContainsSubstring("program: /bin/sh, node 1 of 2, led by node 0 at 127.0.0.1:") &&
                 ContainsSubstring("processes 1 to 2 (" + pid("1") + ", " + pid("2") + ")\nkept memory: none\n"));
  CHECK_THAT(ask({"world"}, nodes.agent(0)), ContainsSubstring("a world of 3 processes, of which 0 have joined\n"));
  CHECK_THAT(ask({"world"}, nodes.agent(1)), ContainsSubstring("leads the world; run this there\n"));
  nodes.agent(1).send(SIGTERM);
  CHECK(nodes.codes() == ended_well);
}

TEST_CASE("Several nodes have no successors and no standby") {
  const Variable variable("COX_WORLD_TOKEN", secret);
  const auto run = [](const char* option) {
    return Command::run({"run", "--nodes", "2", "--node", "0", "--leader", "127.0.0.1:0", option, "--", "true"}).err;
  };
  CHECK_THAT(run("--successors"), ContainsSubstring("--successors is for one node"));
  CHECK_THAT(run("--standby"), ContainsSubstring("--standby is for one process"));
}
