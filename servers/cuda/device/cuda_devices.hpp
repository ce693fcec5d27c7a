#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

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
  bool ecc = false;              ///< memory errors are corrected
  /// Which processes may use it (nvidia-smi -c).
  enum class Use : std::uint8_t { Shared, OneProcess, Nobody };
  Use use = Use::Shared;
};

/// Any thread. Throws CudaError: Unsupported without a driver, Validation if there is no such device.
[[nodiscard]] CudaDeviceFacts describe_cuda_device(DeviceId device);

/// How a device reaches the memory of another.
struct CudaPeerFacts {
  bool access = false;  ///< directly; else copies go through the host
  int rank = 0;         ///< of the link, as the driver ranks them; 0 is the fastest
};

/// Any thread. Throws as describe_cuda_device does. Precondition: they are two.
[[nodiscard]] CudaPeerFacts describe_cuda_peer(DeviceId device, DeviceId peer);

/// A library that is opened at run time.
struct CudaLibraryFacts {
  bool found = false;
  int version = 0;    ///< of CUDA: 13000 is 13.0
  std::string error;  ///< one line; empty if it was found
};

/// The driver, which the first call opens. Any thread. Throws ConfigError.
[[nodiscard]] CudaLibraryFacts describe_cuda_driver();
/// NVRTC, the same way.
[[nodiscard]] CudaLibraryFacts describe_nvrtc();

}  // namespace cox
