#pragma once

#include <coxswain/device_handle/device_id.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cox {

/// The type of CUDA devices in a DeviceId.
inline constexpr std::uint16_t cuda_device_type = 1;

/// All that the driver shows this process (CUDA_VISIBLE_DEVICES), in its order. Empty if there is no driver or no
/// device: why_no_cuda() tells. Opens no device. Any thread; blocks the first time, while the driver starts.
[[nodiscard]] std::vector<DeviceId> enumerate_cuda_devices();

/// Why enumerate_cuda_devices() is empty, in one line; an empty text if it is not. Any thread.
[[nodiscard]] std::string why_no_cuda();

/// What the driver says of a device that need not be open.
struct CudaDeviceFacts {
  std::string name;        ///< "NVIDIA H200"
  std::size_t memory = 0;  ///< bytes
  std::string bus_id;      ///< of PCI: "0000:3b:00.0"
  int compute_major = 0;   ///< of the compute capability: 9 of 9.0
  int compute_minor = 0;
  int multiprocessors = 0;
  std::optional<int> numa_node;  ///< that the device is on; none where the system does not know
};

/// Any thread. Throws CudaError: Unsupported without a driver, Validation if there is no such device.
[[nodiscard]] CudaDeviceFacts describe_cuda_device(DeviceId device);

}  // namespace cox
