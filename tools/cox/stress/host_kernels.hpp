#pragma once

#include <coxswain/servers/host/host_kernel.hpp>
#include <coxswain/tools/cox/stress/sequence.hpp>

#include <chrono>
#include <cstdint>

namespace cox::stress {

/// What the clients launch on host devices. All work on 32-bit words, as many as the first buffer has; each takes one
/// scalar. Built once.
struct HostKernels {
  static constexpr std::uint32_t units = 64;  ///< of a cube, each for one word

  HostKernel fill;  ///< y[i] = a
  HostKernel iota;  ///< y[i] = a + i
  HostKernel flip;  ///< y[i] ^= a
  HostKernel axpy;  ///< y[i] += a * x[i], as far as x goes

  [[nodiscard]] static const HostKernels& instance();
  /// Takes no buffer, and that long.
  [[nodiscard]] static HostKernel stalling(std::chrono::milliseconds time);
  /// Takes one buffer and throws the InjectedFault with that tag before it touches it.
  [[nodiscard]] static HostKernel throwing(std::uint32_t client, Sequence sequence);
};

}  // namespace cox::stress
