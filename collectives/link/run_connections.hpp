#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/device_handle/queue/spin_wait.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

namespace cox::detail::world {

/// For how long the threads of connections poll before they sleep: as long as device threads do. A thread that sleeps
/// takes tens of microseconds to wake up, or more if its processor has slept, too.
struct ConnectionSpin {
  std::chrono::nanoseconds without_gpus = settings().get<std::chrono::nanoseconds>("device_thread.spin");
  std::chrono::nanoseconds with_gpus =
      std::max(without_gpus, settings().get<std::chrono::nanoseconds>("cuda.device_thread_spin"));

  /// In a world of these processes.
  [[nodiscard]] std::chrono::nanoseconds in(const std::vector<ProcessFacts>& processes) const noexcept {
    const auto has_gpus = [](const ProcessFacts& process) { return !process.versions.empty(); };
    return std::ranges::any_of(processes, has_gpus) ? with_gpus : without_gpus;
  }
};

/// Runs the handlers of connections until the io_context is stopped. When there is nothing to do, it polls for `spin`,
/// which a handler may change, before it sleeps. Throws what a handler throws, and can be called again then.
/// Precondition: the io_context has work until it is stopped.
inline void run_connections(boost::asio::io_context& io, const std::chrono::nanoseconds& spin) {
  SpinWait idle(spin);
  while (!io.stopped()) {
    if (io.poll_one() == 0) {
      if (idle.spin_once()) continue;
      io.run_one();
    }
    idle = SpinWait(spin);
  }
}

}  // namespace cox::detail::world
