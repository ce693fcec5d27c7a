#pragma once

#include <coxswain/device_handle/queue/spin_wait.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>

namespace cox::detail::world {

/// Runs the handlers of connections until the io_context is stopped. When there is nothing to do, it polls for `spin`
/// before it sleeps: a thread that sleeps takes tens of microseconds to wake up, or more if its processor has slept,
/// too. Throws what a handler throws, and can be called again then. Precondition: the io_context has work until it is
/// stopped.
inline void run_connections(boost::asio::io_context& io, std::chrono::nanoseconds spin) {
  SpinWait idle(spin);
  while (!io.stopped()) {
    if (io.poll_one() == 0) {
      if (idle.spin_once()) continue;
      io.run_one();
    }
    idle.restart();
  }
}

}  // namespace cox::detail::world
