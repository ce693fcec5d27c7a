#pragma once

#include <coxswain/tests/support/temporary_folder.hpp>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

extern char** environ;

namespace cox::test {

/// The setting world.silence of tests in which a process is silent.
#if defined(__SANITIZE_THREAD__)
/// For each report, also a suppressed one, ThreadSanitizer loads debug information, and no other thread can start a
/// thread meanwhile: processes that share a core are silent for 0.4 s then.
constexpr std::chrono::milliseconds silence{1200};
#else
constexpr std::chrono::milliseconds silence{300};
#endif
inline std::vector<std::string> detect_silence() {
  return {"COX_WORLD_HEARTBEAT=50ms", "COX_WORLD_SILENCE=" + std::to_string(silence.count()) + "ms"};
}

/// The processes of a world: this program again, with other arguments. Each writes into a file of its own.
class WorldProcesses {
 public:
  /// `arguments`: of all processes. `variables` ("NAME=VALUE") come before those that are set here.
  WorldProcesses(std::size_t processes, std::vector<std::string> arguments, std::vector<std::string> variables = {})
      : arguments_(std::move(arguments)), variables_(std::move(variables)) {
    for (std::size_t process = 0; process < processes; ++process) pids_.push_back(start(process, processes, {}));
  }
  WorldProcesses(const WorldProcesses&) = delete;
  WorldProcesses& operator=(const WorldProcesses&) = delete;
  ~WorldProcesses() {
    for (const pid_t pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL);
    for (std::size_t process = 0; process < pids_.size(); ++process) static_cast<void>(wait(process));
  }

  /// Waits until the process has ended. Returns its exit code, or 128 plus the signal.
  [[nodiscard]] int wait(std::size_t process) {
    if (pids_[process] <= 0) return statuses_[process];
    int status = 0;
    while (::waitpid(pids_[process], &status, 0) < 0) {
    }
    pids_[process] = -1;
    statuses_.resize(pids_.size());
    return statuses_[process] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  /// Starts a process again, which has ended, with one more variable. What it prints follows what it has printed.
  void start_again(std::size_t process, const std::string& variable) {
    pids_[process] = start(process, pids_.size(), {variable});
  }
  void kill(std::size_t process, int signal) const { ::kill(pids_[process], signal); }
  [[nodiscard]] std::string output(std::size_t process) const {
    std::ifstream file(output_file(process));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }

 private:
  [[nodiscard]] std::filesystem::path output_file(std::size_t process) const {
    return folder_.path() / ("output" + std::to_string(process));
  }

  pid_t start(std::size_t process, std::size_t processes, const std::vector<std::string>& more) const {
    std::vector<std::string> variables = more;
    variables.insert(variables.end(), variables_.begin(), variables_.end());
    for (char** variable = environ; *variable != nullptr; ++variable)
      if (!std::string(*variable).starts_with("COX_WORLD")) variables.emplace_back(*variable);
    if (processes > 1) {
      variables.push_back("COX_WORLD=file:" + folder_.path().string());
      variables.push_back("COX_WORLD_PROCESS=" + std::to_string(process));
      variables.push_back("COX_WORLD_PROCESSES=" + std::to_string(processes));
      variables.push_back("COX_WORLD_RUN=test");
      variables.push_back("COX_WORLD_LOCAL_PROCESS=" + std::to_string(process));
      variables.push_back("COX_WORLD_LOCAL_PROCESSES=" + std::to_string(processes));
    }
    std::vector<std::string> words{"program"};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      for (std::string& text : texts) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output_file(process).c_str(),
                                     O_CREAT | O_WRONLY | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    pid_t pid = -1;
    std::vector<char*> argv = pointers(words);
    std::vector<char*> envp = pointers(variables);
    if (::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), envp.data()) != 0) pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  TemporaryFolder folder_;
  std::vector<std::string> arguments_;
  std::vector<std::string> variables_;
  std::vector<pid_t> pids_;
  std::vector<int> statuses_;
};

}  // namespace cox::test
