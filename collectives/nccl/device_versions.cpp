#include <coxswain/collectives/nccl/device_versions.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

namespace cox::detail {
namespace {

constexpr std::size_t most_types = 16;

constinit std::array<std::atomic<DeviceVersions>, most_types> versions_by_type{};

std::string_view nccl_of(std::string_view versions) noexcept { return versions.substr(0, versions.find(',')); }

}  // namespace

void set_device_versions(std::uint16_t type, DeviceVersions versions) noexcept {
  if (type < most_types) versions_by_type.at(type).store(versions, std::memory_order_release);
}

std::string device_versions(std::span<const DeviceId> devices) {
  std::array<bool, most_types> has_type{};
  for (const DeviceId device : devices)
    if (device.type < most_types) has_type.at(device.type) = true;
  std::string text;
  for (std::size_t type = 0; type < most_types; ++type) {
    // Acquire pairs with the release in set_device_versions().
    const DeviceVersions versions = versions_by_type.at(type).load(std::memory_order_acquire);
    if (has_type.at(type) && versions != nullptr) text += (text.empty() ? "" : ", ") + versions();
  }
  return text;
}

bool differ_in_nccl(const std::string& a, const std::string& b) noexcept {
  return !a.empty() && !b.empty() && nccl_of(a) != nccl_of(b);
}

}  // namespace cox::detail
