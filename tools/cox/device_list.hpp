#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// The devices that "host", "host:COUNT", "cuda" or "cuda:INDEX,INDEX" stand for. "host:COUNT" sets the number of host
/// devices of this process. Throws ArgumentError, which names `option`, if `text` has another form, DeviceUnavailable
/// for CUDA devices that do not exist.
[[nodiscard]] std::vector<DeviceId> parse_devices(std::string_view option, std::string_view text);

/// The name of a device: "host:0", "cuda:0".
[[nodiscard]] std::string device_name(DeviceId device);

/// The CUDA devices of this machine that are visible to this process; none in a build without the CUDA server.
[[nodiscard]] std::vector<DeviceId> cuda_devices();
/// Why there is no CUDA device, in one line; empty if there is one. Also gives the reason in a build without the CUDA
/// server.
[[nodiscard]] std::string cuda_unavailable_reason();

}  // namespace cox::tools
