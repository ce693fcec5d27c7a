#pragma once

#include <csignal>

namespace cox::detail {

/// As long as it lives, signals that are not faults are not delivered to the calling thread. A thread that is created
/// meanwhile does not get them either, from its first instruction on: signals are for the threads of the program, which
/// may block them and wait for them.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t signals;
    sigfillset(&signals);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&signals, fault);
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace cox::detail
