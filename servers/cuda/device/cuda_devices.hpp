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

/// All devices that the driver shows to this process (CUDA_VISIBLE_DEVICES), in its order. Empty if there is no driver
/// or no device: why_no_cuda() says why. Opens no device. Any thread; blocks the first time, while the driver starts.
[[nodiscard]] std::vector<DeviceId> enumerate_cuda_devices();

/// Why enumerate_cuda_devices() is empty, in one line; an empty text if it is not. Any thread.
[[nodiscard]] std::string why_no_cuda();

/// Properties of a device as the driver reports them. The device need not be open.
struct CudaDeviceFacts {
  std::string name;        ///< "NVIDIA H200"
  std::size_t memory = 0;  ///< bytes
  std::string bus_id;      ///< PCI address: "0000:3b:00.0"
  int compute_major = 0;   ///< compute capability: 9 of 9.0
  int compute_minor = 0;
  int multiprocessors = 0;
  std::optional<int> numa_node;  ///< NUMA node of the device; std::nullopt if the system does not report it
  bool ecc = false;              ///< ECC is enabled: memory errors are corrected
  /// Which processes may use the device (nvidia-smi -c).
  enum class Use : std::uint8_t { Shared, OneProcess, Nobody };
  Use use = Use::Shared;
};

/// Any thread. Throws CudaError: Unsupported without a driver, Validation if there is no such device.
[[nodiscard]] CudaDeviceFacts describe_cuda_device(DeviceId device);

/// How a device reaches the memory of another.
struct CudaPeerFacts {
  bool access = false;   ///< direct access; without it, copies go through the host
  int rank = 0;          ///< performance rank of the link, as the driver reports it; 0 is the fastest
  bool atomics = false;  ///< kernels can do atomic operations on that memory, which NVLink supports and PCIe does not
};

/// Any thread. Throws as describe_cuda_device() does. Precondition: `device` and `peer` differ.
[[nodiscard]] CudaPeerFacts describe_cuda_peer(DeviceId device, DeviceId peer);

/// A library that is opened at run time.
struct CudaLibraryFacts {
  bool found = false;
  int version = 0;    ///< CUDA version: 13000 is 13.0
  std::string error;  ///< one line; empty if it was found
};

/// The driver, which the first call opens. Any thread. Throws ConfigError.
[[nodiscard]] CudaLibraryFacts describe_cuda_driver();
/// NVRTC, which the first call opens. Any thread. Throws ConfigError.
[[nodiscard]] CudaLibraryFacts describe_nvrtc();

}  // namespace cox
