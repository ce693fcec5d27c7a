#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/servers/cuda/peer/communication_routes.hpp>

#include <vector>

namespace cox {

/// Whether reductions that NCCL does not do, or not exactly (16-bit integers, means of integers), are done between
/// these devices, by kernels in the memory of the others. As explain_cuda_communication.
[[nodiscard]] bool reduces_in_peer_memory(const std::vector<DeviceId>& devices);

/// What is chosen between these devices, as the settings and the driver are. Opens no device. Any thread; blocks while
/// the driver and NCCL are opened, the first time. Throws CudaError: Unsupported without a driver, Validation if a
/// device is not there; ConfigError.
[[nodiscard]] std::vector<CudaRoute> explain_cuda_communication(const std::vector<DeviceId>& devices);

}  // namespace cox
