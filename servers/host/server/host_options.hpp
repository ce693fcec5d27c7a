#pragma once

#include <cstddef>
#include <cstdint>

namespace cox {

class Settings;

/// The type of host devices in a DeviceId.
inline constexpr std::uint16_t host_device_type = 0;

/// The options of host devices. A device that is already open keeps the options with which it was opened. The defaults
/// are those of the settings host.*.
struct HostOptions {
  std::uint16_t device_count = 4;
  std::size_t threads_per_device = 2;                  ///< threads that run stream work
  std::size_t memory_capacity = std::size_t{1} << 30;  ///< bytes of each device
  std::size_t pinned_capacity = std::size_t{1} << 28;  ///< bytes for staging, of each device

  friend bool operator==(const HostOptions&, const HostOptions&) = default;
};

/// The options according to the settings host.*.
[[nodiscard]] HostOptions host_options(const Settings& settings);
/// The options in force: from the settings of the process (process_settings.hpp). Any thread. Throws ConfigError.
[[nodiscard]] HostOptions host_options();
/// Sets host.devices, host.threads, host.memory and host.pinned_memory from code. Any thread. Throws ConfigError
/// OutOfRange.
void set_host_options(const HostOptions& options);
/// Resets these settings to environment, file and defaults. Any thread.
void reset_host_options();

/// Returns host_options().device_count.
[[nodiscard]] std::uint16_t host_device_count();
/// Sets host.devices from code.
void set_host_device_count(std::uint16_t count);

}  // namespace cox
