#include <coxswain/tools/cox/device_list.hpp>

#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace cox::tools {
namespace {

constexpr std::uint64_t max_host_devices = 256;

std::vector<DeviceId> host_devices(std::string_view option, std::string_view count) {
  const std::uint64_t devices = parse_count(option, count, 1, max_host_devices);
  set_host_device_count(static_cast<std::uint16_t>(devices));
  return HostServer::enumerate_devices(host_device_type);
}

// Parses "0,1". Does not check that the devices exist.
std::vector<DeviceId> listed_cuda_devices(std::string_view option, std::string_view list) {
  std::vector<DeviceId> devices;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view part = list.substr(begin, end - begin);
    const std::uint64_t index = parse_count(option, part, 0, std::numeric_limits<std::uint16_t>::max());
    const DeviceId device{cuda_device_type, static_cast<std::uint16_t>(index)};
    if (std::ranges::find(devices, device) != devices.end())
      throw ArgumentError(std::string(option) + ": '" + std::string(part) + "' is given twice");
    devices.push_back(device);
    begin = end + 1;
  }
  return devices;
}

// Returns `wanted`, or all CUDA devices if `wanted` is empty. Throws DeviceUnavailable for a device that does not
// exist.
std::vector<DeviceId> present_cuda_devices(const std::string& asked_for, const std::vector<DeviceId>& wanted) {
  const std::vector<DeviceId> present = cuda_devices();
  if (present.empty()) throw DeviceUnavailable(asked_for + ": " + cuda_unavailable_reason());
  for (const DeviceId device : wanted) {
    if (std::ranges::find(present, device) != present.end()) continue;
    throw DeviceUnavailable(asked_for + ": there is no " + device_name(device) + ", the last is " +
                            device_name(present.back()));
  }
  return wanted.empty() ? present : wanted;
}

}  // namespace

std::vector<DeviceId> parse_devices(std::string_view option, std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view kind = text.substr(0, colon);
  const bool all = colon == text.size();
  const std::string_view rest = all ? std::string_view() : text.substr(colon + 1);
  if (kind == "host" && !all) return host_devices(option, rest);
  if (kind == "host") {
    std::vector<DeviceId> devices = HostServer::enumerate_devices(host_device_type);
    if (devices.size() > max_host_devices)
      throw ArgumentError("host.devices is " + std::to_string(devices.size()) + "; cox opens at most " +
                          std::to_string(max_host_devices) + ": use " + std::string(option) + " host:COUNT");
    return devices;
  }
  if (kind == "cuda") {
    const std::string asked_for = std::string(option) + " " + std::string(text);
    return present_cuda_devices(asked_for, all ? std::vector<DeviceId>() : listed_cuda_devices(option, rest));
  }
  throw ArgumentError(std::string(option) + ": '" + std::string(text) +
                      "' is none of host, host:COUNT, cuda, cuda:INDEX,INDEX");
}

std::string device_name(DeviceId device) { return device.to_string(); }

#ifdef COX_HAS_CUDA
std::vector<DeviceId> cuda_devices() { return enumerate_cuda_devices(); }

std::string cuda_unavailable_reason() {
  const std::string why = why_no_cuda();
  return why.empty() ? why : "no CUDA device is available: " + why;
}
#else
std::vector<DeviceId> cuda_devices() { return {}; }

std::string cuda_unavailable_reason() { return "no CUDA device is available: this build has no CUDA server"; }
#endif

}  // namespace cox::tools
