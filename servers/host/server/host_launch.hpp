#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/servers/host/kernel/host_kernel.hpp>
#include <coxswain/servers/host/kernel/host_range.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>

namespace cox::detail {

/// A checked launch that is queued on its stream.
struct HostLaunch {
  struct Argument {
    HostRange range;
    Access access = Access::Write;
  };

  HostKernel kernel;
  CubeCount::Static count;                 ///< not used with a `dynamic_count`
  std::optional<HostRange> dynamic_count;  ///< x, y, z as u32; written before run()
  SmallVector<Argument, 8> arguments;
  SmallVector<std::uint64_t, 4> words;  ///< scalars and metadata
  ScalarTypes types;                    ///< of the scalars
  OperationMemory memory;               ///< empty in a capture: each replay has its own
  ExecutionMode mode = ExecutionMode::Checked;
  std::shared_ptr<const HardwareProperties> hardware;
  Location location;
  std::source_location site;

  /// Runs the kernel for every cube, on the calling thread. Throws LaunchError: Io (memory that the launch reads is
  /// poisoned), TooManyResources (dynamic count), OutOfBounds, ArgumentCount and ArgumentType from accesses of the
  /// kernel, KernelFailed for any other exception of the kernel.
  void run();

 private:
  void run_cubes();
};

}  // namespace cox::detail
