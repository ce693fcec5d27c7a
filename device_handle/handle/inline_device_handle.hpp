#pragma once

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/registry/inline_device.hpp>

namespace cox {

/// The contract of DeviceHandle without a thread: every call runs on the caller's thread under the device's lock, so
/// submit blocks until its closure has run. For debugging and for comparison.
template <class S>
using InlineDeviceHandle = BasicDeviceHandle<S, InlineDevice>;

}  // namespace cox
