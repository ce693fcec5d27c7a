#include <coxswain/tools/cox/interruption.hpp>

namespace cox::tools {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

extern "C" void interrupt(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

Interruption::Interruption() noexcept {
  interrupted.store(false, std::memory_order_relaxed);
  struct sigaction action{};
  action.sa_handler = interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
  action.sa_flags = SA_RESTART;
  sigaction(SIGHUP, nullptr, &hangup_);
  if (hangup_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

Interruption::~Interruption() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGHUP, &hangup_, nullptr);
}

const std::atomic<bool>& Interruption::flag() const noexcept { return interrupted; }

}  // namespace cox::tools
