#include <coxswain/device_handle/service/inline_calls.hpp>

#include <cstddef>
#include <utility>

namespace cox {

void InlineCalls::run_deferred() {
  runs_deferred_ = true;
  while (deferred_.size() > first_) {
    const auto at = deferred_.begin() + static_cast<std::ptrdiff_t>(first_);
    const auto next = std::move(*at);
    deferred_.erase(at);
    next->call();
  }
  runs_deferred_ = false;
}

}  // namespace cox
