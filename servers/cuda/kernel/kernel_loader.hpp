#pragma once

#include <coxswain/servers/cuda/compile/loaded_kernel.hpp>
#include <coxswain/servers/cuda/kernel/kernel_definition.hpp>

#include <coxswain/runtime/base/location.hpp>

#include <memory>
#include <source_location>

namespace cox {
class CudaKernel;
}

namespace cox::detail {

/// Compiles the kernel if necessary, and loads it eagerly for the device of the context: no loading is left for its
/// first launch. Code is loaded into the process once for each KernelKey, shared by devices and kernels, and never
/// unloaded. Blocks the calling thread until all of that is done. Errors become the failure of the result; throws only
/// std::bad_alloc.
[[nodiscard]] LoadedKernel load_kernel(const KernelDefinition& definition,
                                       const std::shared_ptr<const CudaContext>& context);

/// The prepared kernel, for a launch. Throws LaunchError: if prepare() has failed, with that failure as its cause, and
/// of the same kind if the failure is a LaunchError; NullFunction if the kernel has not been prepared. For the device
/// thread.
[[nodiscard]] const LoadedKernel& require_loaded(const CudaKernel& kernel, const Location& location,
                                                 std::source_location site);

}  // namespace cox::detail
