#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/tensor/tensor_map.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <source_location>

namespace cox::detail {

/// What a kernel is given for the tensor map of memory at `address`. The descriptor was validated when the arguments
/// were made; throws LaunchError ArgumentType if the memory is not aligned as it must be, CudaError if the driver
/// refuses it. Device thread; does not meet the device.
[[nodiscard]] CUtensorMap encode_tensor_map(const TensorMapDescriptor& descriptor, CUdeviceptr address,
                                            const Location& location, std::source_location site);

}  // namespace cox::detail
