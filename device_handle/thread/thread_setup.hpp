#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>

#include <vector>

namespace cox::detail {

/// Makes the calling thread a device thread for the system: blocks its signals but those of faults, names it
/// (`cox-d0-1`: downstream, type, index), binds it to `cpus` if there are any, and asks for short slices. What the
/// system refuses stays as it is.
void set_up_device_thread(DeviceId device, Stage stage, const std::vector<int>& cpus) noexcept;

}  // namespace cox::detail
