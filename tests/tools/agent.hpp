#pragma once

#include <coxswain/runtime/socket/file_descriptor.hpp>
#include <coxswain/runtime/socket/local_socket.hpp>
#include <coxswain/tools/cox/supervisor/child_process.hpp>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

/// A limit for waits that end at once unless something is wrong.
inline constexpr std::chrono::minutes longest_wait{2};
inline constexpr int longest_wait_ms = static_cast<int>(std::chrono::milliseconds(longest_wait).count());

/// A descriptor that is readable when the process has ended; closed: it has gone.
inline FileDescriptor open_process(pid_t process) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
}

/// A process of the program cox that runs in parallel with the test. The destructor kills it.
class Agent {
 public:
  explicit Agent(const std::vector<std::string>& arguments, const tools::EnvironmentChanges& changes = {})
      : Agent(make_pipe(), arguments, changes) {}

  [[nodiscard]] pid_t id() const noexcept { return child_.id(); }
  void send(int signal) { child_.send(signal); }
  /// What it has written to its standard error stream so far.
  [[nodiscard]] const std::string& err() const noexcept { return err_; }
  [[nodiscard]] bool has_ended(int within_ms = 0) const noexcept { return is_readable(process_.get(), within_ms); }
  /// Blocks until it has written that text. Throws std::runtime_error if it ends before, or after `longest_wait`.
  void wait_for(const std::string& text) {
    constexpr int pause_ms = 100;
    const auto until = std::chrono::steady_clock::now() + longest_wait;
    while (err_.find(text) == std::string::npos) {
      const bool is_last = has_ended() || std::chrono::steady_clock::now() > until;  // its children may have the pipe
      const bool is_read = is_readable(read_.get(), is_last ? 0 : pause_ms) && read_some();
      if (!is_read && is_last) throw std::runtime_error("not written: '" + text + "', but: " + err_);
    }
  }
  /// Blocks until it has ended. Returns the exit code as a shell does. Throws std::runtime_error after `longest_wait`.
  [[nodiscard]] int end() {
    if (!has_ended(longest_wait_ms)) throw std::runtime_error("the agent has not ended: " + err_);
    while (is_readable(read_.get()) && read_some()) {  // its children may have the other end
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
      : Agent(ends, FileDescriptor(::dup(ends[1])), arguments, changes) {}
  // `inherited`: has no O_CLOEXEC.
  Agent(std::array<int, 2> ends, FileDescriptor inherited, const std::vector<std::string>& arguments,
        const tools::EnvironmentChanges& changes)
      : read_(ends[0]), child_(command(inherited.get(), arguments), changes), process_(open_process(child_.id())) {
    ::close(ends[1]);
  }

  bool read_some() {
    std::array<char, 4096> text{};
    ssize_t size = 0;
    do size = ::read(read_.get(), text.data(), text.size());
    while (size < 0 && errno == EINTR);
    if (size > 0) err_.append(text.data(), static_cast<std::size_t>(size));
    return size > 0;
  }

  FileDescriptor read_;
  std::string err_;
  tools::ChildProcess child_;
  FileDescriptor process_;
};

}  // namespace cox::test
