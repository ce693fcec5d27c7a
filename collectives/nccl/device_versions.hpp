#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace cox::detail {

/// Returns the versions of the libraries that drive the devices of one type, that of NCCL first: "NCCL 2.28.9, driver
/// of CUDA 13.0".
using DeviceVersions = std::string (*)();

/// The library of a kind of devices calls this when it is loaded.
void set_device_versions(std::uint16_t type, DeviceVersions versions) noexcept;
/// The versions for the types of these devices; empty if no type has any. Opens their libraries, but neither devices
/// nor NCCL's communicators.
[[nodiscard]] std::string device_versions(std::span<const DeviceId> devices);
/// Whether two processes of a world have different versions of NCCL, which cannot communicate with each other. Other
/// versions may differ; a process without such devices has no versions.
[[nodiscard]] bool differ_in_nccl(const std::string& a, const std::string& b) noexcept;

}  // namespace cox::detail
