#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cox {

/// DeviceId::process of this process's devices in the names that its world has for them; 0 while it has joined none.
/// Any thread.
[[nodiscard]] std::uint16_t own_process() noexcept;

/// Whether the devices belong to processes on one host, by the names that the hosts had when this process joined its
/// world. Any thread.
[[nodiscard]] bool are_on_one_host(std::span<const DeviceId> devices);

namespace detail {

/// From now on own_process() returns this.
void set_own_process(std::uint16_t process) noexcept;
/// For are_on_one_host(): the name of the host of each process, by its number from 0.
void set_hosts(std::vector<std::string> hosts);

/// The name in the world of a device of process `own`; other names are returned as they are.
[[nodiscard]] constexpr DeviceId world_name(DeviceId device, std::uint16_t own) noexcept {
  if (device.process == 0) device.process = own;
  return device;
}
/// The name in process `own` of one of its devices; names of devices of other processes are returned as they are.
[[nodiscard]] constexpr DeviceId local_name(DeviceId device, std::uint16_t own) noexcept {
  if (device.process == own) device.process = 0;
  return device;
}

}  // namespace detail

}  // namespace cox
