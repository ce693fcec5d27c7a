#pragma once

#include <coxswain/tests/tools/agent.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tests/tools/scratch_folder.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

inline const std::string secret = "00112233445566778899aabbccddeeff";
inline const std::set<int> ended_well{0};

using Words = std::vector<std::string>;

inline Words words_in(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// For loops that wait for what has no descriptor.
inline void pause_shortly() { static_cast<void>(::poll(nullptr, 0, 5)); }

/// Blocks until the process has ended. Throws std::runtime_error after `longest_wait`.
inline void await_end(const std::string& pid) {
  const FileDescriptor process = open_process(static_cast<pid_t>(std::stol(pid)));
  if (process.is_open() && !is_readable(process.get(), longest_wait_ms))
    throw std::runtime_error("process " + pid + " has not ended");
}

/// What the agent answers to that command, such as {"run", "--status"}. It is asked again if this process was held up
/// for so long that the agent did not wait for the request.
inline std::string ask(Words command, const Agent& agent) {
  command.push_back(std::to_string(agent.id()));
  const auto until = std::chrono::steady_clock::now() + longest_wait;
  for (;;) {
    const tools::Command asked = tools::Command::run(command);
    const bool is_answered = asked.err.find("no supervisor in process") == std::string::npos;
    if (is_answered || agent.has_ended() || std::chrono::steady_clock::now() > until) return asked.out + asked.err;
  }
}

/// For the scripts, which share the folder $OUT: as in world_supervisor_test.cpp.
inline const std::string script_functions =
    "P=$COX_WORLD_PROCESS; D=$OUT/$COX_WORLD_RESTART; mkdir -p $D; echo $$ > $D/draft$P; mv $D/draft$P $D/pid$P; N=0; "
    "pause() { N=$((N + 1)); [ $N -lt 10000 ] || exit 99; sleep 0.01; }; "
    "await() { while ! [ -e $D/$1 ]; do pause; done; }; "
    "await_gone() { await pid$1; while kill -0 $(cat $D/pid$1) 2> /dev/null; do pause; done; }; "
    "idle() { while :; do pause; done; }; ";

/// A world with so many processes on each node. The agents are killed at the end, if they have not ended.
class Nodes {
 public:
  Nodes(std::vector<std::size_t> processes, Words options, Words program)
      : processes_(std::move(processes)), options_(std::move(options)), program_(std::move(program)) {}
  Nodes(std::vector<std::size_t> processes, const std::string& script, Words options = {})
      : Nodes(std::move(processes), std::move(options), {"/bin/sh", "-c", script_functions + script}) {}

  /// Starts the agents of all nodes. That of node 0 listens on a free port.
  Nodes& start() {
    start_head();
    for (std::size_t node = 1; node < processes_.size(); ++node) start(node);
    return *this;
  }
  Agent& start_head(const tools::EnvironmentChanges& changes = {}) {
    start(0, changes);
    const std::string before = " nodes at 127.0.0.1:";
    agent(0).wait_for(before);
    agent(0).wait_for(", at most ");
    const std::string& err = agent(0).err();
    const std::size_t begin = err.find(before) + before.size();
    port_ = static_cast<std::uint16_t>(std::stoul(err.substr(begin, err.find(':', begin) - begin)));
    return agent(0);
  }
  Agent& start(std::size_t node, const tools::EnvironmentChanges& changes = {}) {
    Words arguments{"run",
                    "--nodes",
                    std::to_string(processes_.size()),
                    "--node",
                    std::to_string(node),
                    "--leader",
                    "127.0.0.1:" + std::to_string(port_),
                    "--processes",
                    std::to_string(processes_[node]),
                    "--backoff",
                    "1ms",
                    "--backoff-max",
                    "1ms"};
    arguments.insert(arguments.end(), options_.begin(), options_.end());
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), program_.begin(), program_.end());
    tools::EnvironmentChanges all{{"COX_WORLD_TOKEN", secret}, {"OUT", folder_.path()}};
    for (const auto& [name, value] : changes) all[name] = value;
    agents_[node] = std::make_unique<Agent>(arguments, all);
    return *agents_[node];
  }

  [[nodiscard]] Agent& agent(std::size_t node) { return *agents_.at(node); }
  /// The exit codes of all agents, once they have ended.
  [[nodiscard]] std::set<int> codes() {
    std::set<int> all;
    for (const auto& [node, agent] : agents_) all.insert(agent->end());
    return all;
  }
  [[nodiscard]] std::string err(std::size_t node = 0) { return agent(node).err(); }
  [[nodiscard]] std::string text(const std::string& file) const { return folder_.text(file); }
  /// Blocks until the scripts have made the files. Throws std::runtime_error if all agents have ended before, or after
  /// `longest_wait`.
  void await(const Words& files) const {
    const auto until = std::chrono::steady_clock::now() + longest_wait;
    for (const std::string& file : files)
      for (;;) {
        const bool is_last = std::chrono::steady_clock::now() > until ||
                             std::ranges::all_of(agents_, [](const auto& each) { return each.second->has_ended(); });
        if (std::filesystem::exists(folder_.path() + "/" + file)) break;
        if (is_last) throw std::runtime_error("the scripts have not made the file " + file);
        pause_shortly();
      }
  }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Where agents of other nodes are to connect, if the head is not one of these agents.
  void set_port(std::uint16_t port) noexcept { port_ = port; }

 private:
  ScratchFolder folder_;
  const std::vector<std::size_t> processes_;
  const Words options_;
  const Words program_;
  std::uint16_t port_ = 0;
  std::map<std::size_t, std::unique_ptr<Agent>> agents_;
};

}  // namespace cox::test
