#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/servers/cuda/peer/communication_routes.hpp>

#include <vector>

namespace cox {

/// Whether kernels in peer memory do, between these devices, the reductions that NCCL does not do, or not exactly
/// (16-bit integers, means of integers). Opens no device. Any thread; blocks while the driver is opened, the first
/// time. Throws as explain_cuda_communication() does.
[[nodiscard]] bool reduces_in_peer_memory(const std::vector<DeviceId>& devices);

/// The routes that are chosen between these devices with the current settings and driver; empty for fewer than two
/// devices. Opens no device. Any thread; blocks while the driver and NCCL are opened, the first time. Throws CudaError:
/// Unsupported without a driver, Validation if a device does not exist; ConfigError.
[[nodiscard]] std::vector<CudaRoute> explain_cuda_communication(const std::vector<DeviceId>& devices);

}  // namespace cox
