#pragma once

#include <cstddef>
#include <cstdint>

namespace cox {

class Settings;

/// The type of host devices in a DeviceId.
inline constexpr std::uint16_t host_device_type = 0;

/// How host devices are made. Devices that are open already keep what they were made with. The defaults are those of
/// the settings host.*.
struct HostOptions {
  std::uint16_t device_count = 4;
  std::size_t threads_per_device = 2;                  ///< that run stream work
  std::size_t memory_capacity = std::size_t{1} << 30;  ///< bytes of each device
  std::size_t pinned_capacity = std::size_t{1} << 28;  ///< bytes for staging, of each device

  friend bool operator==(const HostOptions&, const HostOptions&) = default;
};

/// What the settings host.* say.
[[nodiscard]] HostOptions host_options(const Settings& settings);
/// What is in force: the settings of the process (process_settings.hpp). Any thread. Throws ConfigError.
[[nodiscard]] HostOptions host_options();
/// Sets host.devices, host.threads, host.memory and host.pinned_memory from code. Any thread. Throws ConfigError
/// OutOfRange.
void set_host_options(const HostOptions& options);
/// Goes back to environment, file and defaults. Any thread.
void reset_host_options();

/// As host_options().device_count.
[[nodiscard]] std::uint16_t host_device_count();
/// Sets host.devices from code.
void set_host_device_count(std::uint16_t count);

}  // namespace cox
