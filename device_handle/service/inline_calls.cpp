#include <coxswain/device_handle/service/inline_calls.hpp>

namespace cox {

void InlineCalls::run_deferred() {
  runs_deferred_ = true;
  while (!deferred_.empty()) {
    const auto next = std::move(deferred_.front());
    deferred_.pop_front();
    next->call();
  }
  runs_deferred_ = false;
}

}  // namespace cox
