#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// The devices that "host", "host:COUNT", "cuda" or "cuda:INDEX,INDEX" stand for. A count of host devices is put in
/// force for the process. Throws ArgumentError if `text` is none of these, DeviceUnavailable for devices that are not
/// there.
[[nodiscard]] std::vector<DeviceId> parse_devices(std::string_view option, std::string_view text);

/// "host:0", "cuda:0".
[[nodiscard]] std::string device_name(DeviceId device);

/// The CUDA devices of this machine, as far as the process may see them; none in a build without the CUDA server.
[[nodiscard]] std::vector<DeviceId> cuda_devices();
/// Why there are none, in one line; an empty text if there are. The same for such a build.
[[nodiscard]] std::string cuda_unavailable_reason();

}  // namespace cox::tools
