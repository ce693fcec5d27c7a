#include <coxswain/tools/cox/process_start.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>

namespace cox::tools {
namespace {

constexpr rlim_t min_stack = std::size_t{1} << 20U;

extern "C" void continue_with_error(int) {}

// Installs a handler instead of SIG_IGN, because programs that this process starts would inherit SIG_IGN.
void make_it_an_error(int signal) noexcept {
  struct sigaction action{};
  if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = continue_with_error;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

void occupy_closed_descriptors() noexcept {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free number, which is this descriptor. The access mode is the opposite of the usual
    // one, so that reading from standard input and writing to the others fails.
    if (open("/dev/null", (descriptor == 0 ? O_WRONLY : O_RDONLY) | O_CLOEXEC) < 0) return;
  }
}

bool provide_stacks() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0) return true;
  if (limit.rlim_cur >= min_stack) return true;
  limit.rlim_cur = min_stack;
  if (limit.rlim_max < min_stack) limit.rlim_max = min_stack;  // succeeds for root only
  if (setrlimit(RLIMIT_STACK, &limit) != 0) return false;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  const bool done =
      pthread_attr_setstacksize(&attributes, min_stack) == 0 && pthread_setattr_default_np(&attributes) == 0;
  pthread_attr_destroy(&attributes);
  return done;
}

}  // namespace

std::string prepare_process() noexcept {
  make_it_an_error(SIGPIPE);
  make_it_an_error(SIGXFSZ);
  occupy_closed_descriptors();
  if (!provide_stacks()) return "stacks of 1MiB are needed; the limit is less (ulimit -s)";
  return "";
}

}  // namespace cox::tools
