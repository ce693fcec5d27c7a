#include <coxswain/device_handle/service/inline_calls.hpp>

namespace cox {

void InlineCalls::run_deferred() {
  while (!deferred_.empty()) {
    const auto next = std::move(deferred_.front());
    deferred_.pop_front();
    next->call();
  }
}

}  // namespace cox
