#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>

#include <memory>
#include <source_location>

namespace cox::detail {

/// The context of an open device. Throws CudaError Unhealthy after a fault, CallError Closed if the device was shut
/// down. Any thread.
[[nodiscard]] std::shared_ptr<CudaContext> open_context(DeviceId device, std::source_location site);

}  // namespace cox::detail
