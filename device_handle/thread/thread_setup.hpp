#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>

#include <vector>

namespace cox::detail {

/// Sets up the calling thread as a device thread: blocks all signals except those of faults, names the thread
/// (`cox-d0-1`: downstream, type, index), binds it to `cpus` if there are any, and requests short time slices. A
/// setting that the system refuses is left unchanged.
void set_up_device_thread(DeviceId device, Stage stage, const std::vector<int>& cpus) noexcept;

}  // namespace cox::detail
