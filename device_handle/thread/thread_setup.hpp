#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>

#include <vector>

namespace cox::detail {

/// Sets up the calling thread as a device thread: names it (`cox-d0-1`: downstream, type, index), binds it to `cpus` if
/// there are any, and requests short time slices. A setting that the system refuses is left unchanged. Signals are
/// blocked by the thread that creates it (BlockedSignals).
void set_up_device_thread(DeviceId device, Stage stage, const std::vector<int>& cpus) noexcept;

}  // namespace cox::detail
