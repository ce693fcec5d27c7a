#pragma once

#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/runtime/error/log.hpp>

namespace cox {

class Settings;

/// Applies those settings of the process that parts of the library do not read themselves. device_thread.* become the
/// default of the device threads that start from now on, unless the program calls set_default_device_thread_options. If
/// any log.* is given or profiling.level is not disabled, the log is started, unless it is running. If trace.file is
/// given or trace.nvtx is true, a trace is started, once. ComputeClient::load and init call this first; a program that
/// uses only device handles calls it before it opens its devices. Does nothing if the settings have not changed since
/// the last call. Any thread. Throws ConfigError.
void apply_settings();

/// The log options that the settings log.* specify, without a callback.
[[nodiscard]] LogOptions log_options(const Settings& settings);
/// The device thread options that the settings device_thread.* specify.
[[nodiscard]] DeviceThreadOptions default_device_thread_options(const Settings& settings);

}  // namespace cox
