#pragma once

#include <cstddef>
#include <cstdint>

namespace cox {

/// The type of host devices in a DeviceId.
inline constexpr std::uint16_t host_device_type = 0;

/// How host devices are made. Devices that are open already keep what they were made with.
struct HostOptions {
  std::uint16_t device_count = 4;
  std::size_t threads_per_device = 2;                  ///< that run stream work
  std::size_t memory_capacity = std::size_t{1} << 30;  ///< bytes of each device

  friend bool operator==(const HostOptions&, const HostOptions&) = default;
};

/// What is in force: set_host_options, else COX_HOST_DEVICES, COX_HOST_THREADS and COX_HOST_MEMORY (bytes) from the
/// environment, else the defaults. Any thread. Throws ConfigError for a variable that is not a number it may be.
[[nodiscard]] HostOptions host_options();
/// Replaces the options as a whole; counts must be at least 1, else ConfigError OutOfRange. Any thread.
void set_host_options(const HostOptions& options);
/// Goes back to environment and defaults.
void reset_host_options() noexcept;

/// As host_options().device_count.
[[nodiscard]] std::uint16_t host_device_count();
/// Changes the device count only.
void set_host_device_count(std::uint16_t count);

}  // namespace cox
