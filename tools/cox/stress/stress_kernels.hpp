#pragma once

#include <cstdint>

namespace cox::stress {

/// The kernels that the clients launch, for servers with that type of kernel. All work on 32-bit words, as many as the
/// first buffer has. A specialisation has:
///
/// - fill, iota, flip, axpy: y[i] = a; y[i] = a + i; y[i] ^= a; y[i] += a * x[i], up to the end of x. Built
///   once: instance().
/// - arguments(y, a), arguments(y, x, a): the arguments of these kernels, from Buffers.
/// - stall(client, time): launches a kernel that takes that long.
/// - launch_failing(client, y, client number, sequence): launches a kernel that fails with LaunchError KernelFailed,
///   whose cause is the InjectedFault with that tag. It writes nothing, and y is poisoned (L14).
template <class Kernel>
struct StressKernels;

/// Units of a cube, each for one word.
inline constexpr std::uint32_t kernel_units = 64;

template <class Compute>
using KernelsOf = StressKernels<typename Compute::Kernel>;

}  // namespace cox::stress
