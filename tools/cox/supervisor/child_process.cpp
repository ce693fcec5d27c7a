#include <coxswain/tools/cox/supervisor/child_process.hpp>

#include <coxswain/tools/cox/supervisor/caught_signals.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <utility>

namespace cox::tools {
namespace {

// A null-terminated array, as exec takes it. The pointers refer to `texts`.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

std::vector<std::string> changed_environment(const EnvironmentChanges& changes) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!changes.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) environment.push_back(name + "=" + *value);
  }
  return environment;
}

// In the child. Resets handled signals to their default action; ignored signals stay ignored.
void forget_signal_handlers() noexcept {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if ((action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
}

// In the child, between fork and exec: nothing here may allocate or lock.
[[noreturn]] void become(char* const* arguments, char* const* environment, const sigset_t& mask, pid_t parent,
                         const std::optional<rlimit>& descriptors, int failure) noexcept {
  constexpr int not_run = 127;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(not_run);  // the parent ended before prctl() took effect
  // A new session, not only a new group: the terminal would stop a process of a background group that reads from it.
  setsid();
  forget_signal_handlers();
  if (descriptors) setrlimit(RLIMIT_NOFILE, &*descriptors);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  static_cast<void>(!write(failure, &error, sizeof error));
  _exit(not_run);
}

// The errno of a failed exec; 0 if exec succeeded, which closes the pipe. Blocks until then.
int read_failure(int pipe) noexcept {
  int error = 0;
  ssize_t length = 0;
  do length = read(pipe, &error, sizeof error);
  while (length < 0 && errno == EINTR);
  return length == static_cast<ssize_t>(sizeof error) ? error : 0;
}

// Blocks all signals during the fork, so that no signal handler of this process runs in the child.
pid_t fork_and_become(char* const* arguments, char* const* environment, const std::optional<rlimit>& descriptors,
                      int failure) noexcept {
  const pid_t parent = getpid();
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t child = fork();
  if (child == 0) become(arguments, environment, mask, parent, descriptors, failure);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  errno = error;
  return child;
}

pid_t wait_for(pid_t child, int& status, int flags) noexcept {
  pid_t found = 0;
  do found = waitpid(child, &status, flags);
  while (found < 0 && errno == EINTR);
  return found;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const EnvironmentChanges& changes,
                           const std::optional<rlimit>& descriptors) {
  std::vector<std::string> words = arguments;
  std::vector<std::string> environment = changed_environment(changes);
  const std::vector<char*> word_list = pointers(words);
  const std::vector<char*> environment_list = pointers(environment);
  std::array<int, 2> failure{};
  if (pipe2(failure.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  id_ = fork_and_become(word_list.data(), environment_list.data(), descriptors, failure[1]);
  int error = id_ < 0 ? errno : 0;
  close(failure[1]);
  if (id_ > 0) error = read_failure(failure[0]);
  close(failure[0]);
  if (error == 0) return;
  int status = 0;
  if (id_ > 0) wait_for(id_, status, 0);
  throw std::system_error(error, std::generic_category());
}

ChildProcess::~ChildProcess() {
  if (end()) return;
  int status = 0;
  kill(-id_, SIGKILL);
  if (!end_) wait_for(id_, status, 0);
}

std::optional<ProgramEnd> ChildProcess::end() noexcept {
  int status = 0;
  if (!end_ && wait_for(id_, status, WNOHANG) == id_) {
    end_ = WIFSIGNALED(status) ? ProgramEnd{.code = 0, .signal = WTERMSIG(status)}
                               : ProgramEnd{.code = WEXITSTATUS(status), .signal = 0};
  }
  if (!end_) return std::nullopt;
  if (const int signal = std::exchange(signal_of_rest_, 0); signal != 0) kill(-id_, signal);
  if (!awaits_group_ && !is_killed_ && !has_waited_ && CaughtSignals::requests_exit(end_->signal) && group_runs()) {
    has_waited_ = true;
    poll(nullptr, 0, 100);    // ends when a signal arrives
    kill(getpid(), SIGCHLD);  // so that the caller looks again
    return std::nullopt;
  }
  awaits_group_ = awaits_group_ && group_runs();
  if (awaits_group_) return std::nullopt;
  is_reported_ = true;
  return end_;
}

// Reaps the processes of the group that have ended after their parents, so that they do not count.
bool ChildProcess::group_runs() const noexcept {
  int status = 0;
  while (wait_for(-id_, status, WNOHANG) > 0) {
  }
  return kill(-id_, 0) == 0;
}

// The id of the group cannot have been used again: it belongs to the program until that is reaped, and then to the
// processes of the group that are left.
void ChildProcess::send(int signal) noexcept {
  if (is_reported_ || (end_ && !group_runs())) return;
  if (signal == SIGKILL) {
    is_killed_ = true;
    awaits_group_ = false;
    if (end_ && end_->exit_code() == 0) end_ = ProgramEnd{.code = 0, .signal = SIGKILL};  // the rest could not end
  } else if (CaughtSignals::requests_exit(signal) && !is_killed_) {
    awaits_group_ = true;
  }
  const bool is_for_program = signal == SIGUSR1 || signal == SIGUSR2;
  if (end_ || (!is_for_program && signal != SIGTERM && signal != SIGHUP)) {
    if (!is_for_program) kill(-id_, signal);
    return;
  }
  if (!is_for_program) signal_of_rest_ = signal;
  kill(id_, signal);
}

// False also if it is not known: there is no memory to read the state of the process.
void ChildProcess::note_failure() noexcept try {
  ended_before_failure_ = end_.has_value() || is_ending(id_);
} catch (const std::exception&) {
  return;
}

int report_not_started(const std::string& program, const std::exception& error, std::ostream& err) {
  constexpr int cannot_run = 126;
  constexpr int not_found = 127;
  err << "cox run: cannot start '" << program << "': " << error.what() << "\n" << std::flush;
  const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
  return of_system != nullptr && of_system->code() == std::errc::no_such_file_or_directory ? not_found : cannot_run;
}

}  // namespace cox::tools
