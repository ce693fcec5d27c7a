#pragma once

#include <coxswain/tools/cox/supervisor/child_process.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

/// A process of the program cox that runs in parallel with the test. The destructor kills it.
class Agent {
 public:
  explicit Agent(const std::vector<std::string>& arguments, const tools::EnvironmentChanges& changes = {})
      : Agent(make_pipe(), arguments, changes) {}
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent() { ::close(read_); }

  [[nodiscard]] pid_t id() const noexcept { return child_.id(); }
  void send(int signal) { child_.send(signal); }
  /// What it has written to its standard error stream so far.
  [[nodiscard]] const std::string& err() const noexcept { return err_; }
  /// Blocks until it has written that text. Throws std::runtime_error if it ends before.
  void wait_for(const std::string& text) {
    while (err_.find(text) == std::string::npos)
      if (!read_some()) throw std::runtime_error("not written: '" + text + "', but: " + err_);
  }
  /// Blocks until it has ended. Returns the exit code as a shell does.
  [[nodiscard]] int end() {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(child_.id()), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    static_cast<void>(::fcntl(read_, F_SETFL, O_NONBLOCK));  // its children may have the other end
    while (read_some()) {
    }
    return child_.end().value().exit_code();
  }

 private:
  static std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    return ends;
  }
  static std::vector<std::string> command(int err, const std::vector<std::string>& arguments) {
    std::vector<std::string> words{"/bin/sh", "-c", "exec \"$0\" \"$@\" 2> /dev/fd/" + std::to_string(err),
                                   COX_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  Agent(std::array<int, 2> ends, const std::vector<std::string>& arguments, const tools::EnvironmentChanges& changes)
      : Agent(ends, ::dup(ends[1]), arguments, changes) {}
  // `inherited`: has no O_CLOEXEC.
  Agent(std::array<int, 2> ends, int inherited, const std::vector<std::string>& arguments,
        const tools::EnvironmentChanges& changes)
      : read_(ends[0]), child_(command(inherited, arguments), changes) {
    ::close(inherited);
    ::close(ends[1]);
  }

  bool read_some() {
    std::array<char, 4096> text{};
    ssize_t size = 0;
    do size = ::read(read_, text.data(), text.size());
    while (size < 0 && errno == EINTR);
    if (size > 0) err_.append(text.data(), static_cast<std::size_t>(size));
    return size > 0;
  }

  int read_;
  std::string err_;
  tools::ChildProcess child_;
};

}  // namespace cox::test
