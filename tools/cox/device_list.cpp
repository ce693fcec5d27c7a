#include <coxswain/tools/cox/device_list.hpp>

#include <coxswain/servers/host/host_server.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace cox::tools {
namespace {

constexpr std::uint64_t most_host_devices = 256;

std::vector<DeviceId> host_devices(std::string_view option, std::string_view count) {
  const std::uint64_t devices = parse_count(option, count, 1, most_host_devices);
  set_host_device_count(static_cast<std::uint16_t>(devices));
  return HostServer::enumerate_devices(host_device_type);
}

void check_indices(std::string_view option, std::string_view list) {
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    static_cast<void>(
        parse_count(option, list.substr(begin, end - begin), 0, std::numeric_limits<std::uint16_t>::max()));
    begin = end + 1;
  }
}

}  // namespace

std::vector<DeviceId> parse_devices(std::string_view option, std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view kind = text.substr(0, colon);
  const bool all = colon == text.size();
  const std::string_view rest = all ? std::string_view() : text.substr(colon + 1);
  if (kind == "host") return all ? HostServer::enumerate_devices(host_device_type) : host_devices(option, rest);
  if (kind == "cuda") {
    if (!all) check_indices(option, rest);
    throw DeviceUnavailable(std::string(option) + " " + std::string(text) + ": " + std::string(why_no_cuda()));
  }
  throw ArgumentError(std::string(option) + ": '" + std::string(text) +
                      "' is none of host, host:COUNT, cuda, cuda:INDEX,INDEX");
}

std::string device_name(DeviceId device) {
  const std::string kind = device.type == host_device_type ? "host" : "type" + std::to_string(device.type);
  return kind + ":" + std::to_string(device.index);
}

std::string_view why_no_cuda() noexcept { return "no CUDA device can be had: this build has no CUDA server"; }

}  // namespace cox::tools
