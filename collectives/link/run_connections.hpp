#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/device_handle/queue/spin_wait.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace cox::detail::world {

/// For how long the thread of connections polls before it sleeps: as long as a device thread does. A thread that sleeps
/// takes tens of microseconds to wake up, or more if its processor has slept, too. That thread only.
class ConnectionSpin {
 public:
  [[nodiscard]] std::chrono::nanoseconds limit() const noexcept { return has_gpus_ ? with_gpus_ : without_gpus_; }
  /// Of the processes of the world. It may change.
  void set_processes(const std::vector<ProcessFacts>& processes) noexcept {
    has_gpus_ = std::ranges::any_of(processes, [](const ProcessFacts& each) { return !each.versions.empty(); });
  }
  /// The handler that runs now exchanges a heartbeat, or has a message of another kind. The thread need not poll longer
  /// for heartbeats.
  void note(bool is_heartbeat) noexcept {
    if (!is_heartbeat)
      last_ = Handler::OfMessage;
    else if (last_ == Handler::Other)
      last_ = Handler::OfHeartbeat;
  }
  /// Whether the handler that has run only exchanged heartbeats.
  [[nodiscard]] bool take_heartbeat() noexcept { return std::exchange(last_, Handler::Other) == Handler::OfHeartbeat; }

 private:
  std::chrono::nanoseconds without_gpus_ = settings().get<std::chrono::nanoseconds>("device_thread.spin");
  std::chrono::nanoseconds with_gpus_ =
      std::max(without_gpus_, settings().get<std::chrono::nanoseconds>("cuda.device_thread_spin"));
  bool has_gpus_ = false;
  enum class Handler : std::uint8_t { Other, OfHeartbeat, OfMessage };
  Handler last_ = Handler::Other;
};

/// Runs the handlers of connections until the io_context is stopped. When there is nothing to do, it polls before it
/// sleeps. Throws what a handler throws, and can be called again then. Precondition: the io_context has work until it
/// is stopped.
inline void run_connections(boost::asio::io_context& io, ConnectionSpin& spin) {
  SpinWait idle(spin.limit());
  while (!io.stopped()) {
    if (io.poll_one() == 0) {
      if (idle.spin_once()) continue;
      io.run_one();
    }
    if (!spin.take_heartbeat()) idle = SpinWait(spin.limit());
  }
}

}  // namespace cox::detail::world
