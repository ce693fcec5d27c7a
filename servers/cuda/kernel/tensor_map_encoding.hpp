#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/tensor/tensor_map.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <source_location>

namespace cox::detail {

/// Encodes the tensor map of memory at `address`, as an argument of a kernel. The descriptor was validated when the
/// kernel arguments were made. Throws LaunchError ArgumentType if the memory is not aligned as required, CudaError if
/// the driver refuses the map. Device thread; gives the device no work.
[[nodiscard]] CUtensorMap encode_tensor_map(const TensorMapDescriptor& descriptor, CUdeviceptr address,
                                            const Location& location, std::source_location site);

}  // namespace cox::detail
