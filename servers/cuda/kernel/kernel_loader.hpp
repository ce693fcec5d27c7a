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

/// Compiles the kernel if it must be, and loads it for the device of the context, eagerly: nothing is left to its first
/// launch. Code is loaded into the process once for each key, shared by devices and kernels, and never unloaded. On the
/// calling thread, for as long as that takes. What goes wrong is the result's failure; throws std::bad_alloc.
[[nodiscard]] LoadedKernel load_kernel(const KernelDefinition& definition,
                                       const std::shared_ptr<const CudaContext>& context);

/// For the device thread: the kernel to launch. Throws LaunchError: with the failure as its cause, of the same kind, if
/// it could not be prepared; NullFunction if it was not.
[[nodiscard]] const LoadedKernel& require_loaded(const CudaKernel& kernel, const Location& location,
                                                 std::source_location site);

}  // namespace cox::detail
