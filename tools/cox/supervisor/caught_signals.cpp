#include <coxswain/tools/cox/supervisor/caught_signals.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <system_error>

namespace cox::tools {
namespace {

std::atomic<int> pipe_end{-1};
static_assert(std::atomic<int>::is_always_lock_free, "read in a signal handler");

extern "C" void note_signal(int number) {
  const int saved = errno;
  // If the pipe is full, the signal is lost; the reader then has many others to take.
  static_cast<void>(!write(pipe_end.load(std::memory_order_relaxed), &number, sizeof number));
  errno = saved;
}

}  // namespace

CaughtSignals::CaughtSignals() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  read_ = ends[0];
  write_ = ends[1];
  pipe_end.store(write_, std::memory_order_relaxed);  // before the handler that reads it is installed
  struct sigaction action{};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) {
    sigaction(signals[i], nullptr, &before_[i]);
    const bool ignored = (before_[i].sa_flags & SA_SIGINFO) == 0 && before_[i].sa_handler == SIG_IGN;
    if (!ignored || signals[i] == SIGCHLD) sigaction(signals[i], &action, nullptr);
  }
}

CaughtSignals::~CaughtSignals() {
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before_[i], nullptr);
  close(read_);
  close(write_);
}

std::optional<int> CaughtSignals::take() noexcept {
  int caught = 0;
  if (read(read_, &caught, sizeof caught) != static_cast<ssize_t>(sizeof caught)) return std::nullopt;
  return caught;
}

bool CaughtSignals::requests_exit(int signal) noexcept {
  return std::find(signals.begin(), signals.begin() + exit_signals, signal) != signals.begin() + exit_signals;
}

void CaughtSignals::stop() noexcept {
  struct sigaction stops{};
  struct sigaction caught{};
  stops.sa_handler = SIG_DFL;
  sigemptyset(&stops.sa_mask);
  sigaction(SIGTSTP, &stops, &caught);
  static_cast<void>(raise(SIGTSTP));
  sigaction(SIGTSTP, &caught, nullptr);
}

bool CaughtSignals::is_passed_on(int signal) noexcept {
  return std::find(signals.begin(), signals.begin() + passed_on, signal) != signals.begin() + passed_on;
}

}  // namespace cox::tools
