#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/thread/blocked_signals.hpp>

#include <pthread.h>

#include <csignal>
#include <thread>

namespace {

bool blocks(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

}  // namespace

TEST_CASE("A thread that is created while signals are blocked takes none but those of faults") {
  const bool before = blocks(SIGTERM);
  bool blocks_termination = false;
  bool blocks_fault = true;
  {
    const cox::detail::BlockedSignals blocked;
    std::thread([&] {
      blocks_termination = blocks(SIGTERM) && blocks(SIGINT) && blocks(SIGUSR1);
      blocks_fault = blocks(SIGSEGV) || blocks(SIGABRT);
    }).join();
  }
  CHECK(blocks_termination);
  CHECK_FALSE(blocks_fault);
  CHECK(blocks(SIGTERM) == before);
}
