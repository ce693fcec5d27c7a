#pragma once

#include <coxswain/device_handle/device_id.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// The devices that "host", "host:COUNT", "cuda" or "cuda:INDEX,INDEX" stand for. A count of host devices is put in
/// force for the process. Throws ArgumentError if `text` is none of these, DeviceUnavailable for devices that this
/// build cannot open.
[[nodiscard]] std::vector<DeviceId> parse_devices(std::string_view option, std::string_view text);

/// "host:0".
[[nodiscard]] std::string device_name(DeviceId device);

/// Why there are no CUDA devices, in one line.
[[nodiscard]] std::string_view why_no_cuda() noexcept;

}  // namespace cox::tools
