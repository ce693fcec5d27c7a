#include <coxswain/tools/cox/dump_request.hpp>

#include <atomic>

namespace cox::tools {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

extern "C" void note_request(int) { requested.store(true, std::memory_order_relaxed); }

}  // namespace

DumpRequest::DumpRequest() noexcept {
  requested.store(false, std::memory_order_relaxed);
  struct sigaction action{};
  action.sa_handler = note_request;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, &before_);
}

DumpRequest::~DumpRequest() { sigaction(SIGUSR1, &before_, nullptr); }

bool DumpRequest::take() noexcept { return requested.exchange(false, std::memory_order_relaxed); }

}  // namespace cox::tools
