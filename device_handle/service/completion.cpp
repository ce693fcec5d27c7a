#include <coxswain/device_handle/service/completion.hpp>

#include <coxswain/device_handle/queue/spin_wait.hpp>

namespace cox {

void Completion::wait(std::chrono::nanoseconds spin) noexcept {
  for (SpinWait waiting(spin); !done();) {
    if (!waiting.spin_once()) break;
  }
  wait_until(std::nullopt, [] { return false; });
}

bool Completion::wait_until(std::chrono::steady_clock::time_point deadline) noexcept {
  return wait_until(deadline, [] { return false; });
}

}  // namespace cox
