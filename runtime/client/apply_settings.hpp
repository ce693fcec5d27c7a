#pragma once

#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/runtime/error/log.hpp>

namespace cox {

class Settings;

/// Puts the settings of the process where the library looks that does not ask for them itself: device_thread.* become
/// the default of the device threads that start from now on, unless the program calls
/// set_default_device_thread_options; if any log.* is given, the log is started, unless it runs; if trace.file is given
/// or trace.nvtx is true, a trace is started, once. ComputeClient::load
/// does this first; a program that uses device handles alone calls it before it opens its devices. Does nothing while
/// the settings are what they were. Any thread. Throws ConfigError.
void apply_settings();

/// What the settings log.* say, without a callback.
[[nodiscard]] LogOptions log_options(const Settings& settings);
/// What the settings device_thread.* say.
[[nodiscard]] DeviceThreadOptions default_device_thread_options(const Settings& settings);

}  // namespace cox
