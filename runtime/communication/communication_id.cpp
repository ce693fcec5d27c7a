#include <coxswain/runtime/communication/communication_id.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>

#include <algorithm>
#include <cstdint>
#include <map>

namespace cox {
namespace {

[[noreturn]] void refuse(const std::string& why, const std::source_location& site) {
  throw CollectiveError(CollectiveError::Kind::Validation, "communicator refused: " + why, site);
}

}  // namespace

CommunicationId::CommunicationId(std::span<const DeviceId> devices, Site site)
    : devices_(devices.begin(), devices.end()) {
  if (const std::uint16_t own = own_process(); own != 0) {
    const bool all_own = std::ranges::all_of(
        devices_, [own](const DeviceId device) { return device.process == 0 || device.process == own; });
    for (DeviceId& device : devices_)
      device = all_own ? detail::local_name(device, own) : detail::world_name(device, own);
  }
  std::ranges::sort(devices_);
  if (devices_.empty()) refuse("no device was named", site);
  if (const auto twice = std::ranges::adjacent_find(devices_); twice != devices_.end())
    refuse(twice->to_string() + " is named twice", site);
  if (devices_.front().type != devices_.back().type)
    refuse(devices_.front().to_string() + " and " + devices_.back().to_string() + " are of different types", site);
}

std::size_t CommunicationId::rank_of(DeviceId device, Site site) const {
  const DeviceId name = name_of(device);
  const auto found = std::ranges::lower_bound(devices_, name);
  if (found == devices_.end() || *found != name)
    throw CollectiveError(CollectiveError::Kind::Validation, device.to_string() + " is not in " + to_string(), site);
  return static_cast<std::size_t>(found - devices_.begin());
}

bool CommunicationId::contains(DeviceId device) const noexcept {
  return std::ranges::binary_search(devices_, name_of(device));
}

DeviceId CommunicationId::name_of(DeviceId device) const noexcept {
  return spans_processes() ? detail::world_name(device, own_process()) : detail::local_name(device, own_process());
}

std::vector<CommunicationId> CommunicationId::split(std::span<const int> colours, Site site) const {
  if (colours.size() != devices_.size())
    refuse(std::to_string(colours.size()) + " colours were given for " + std::to_string(devices_.size()) + " devices",
           site);
  std::map<int, std::vector<DeviceId>> sets;
  for (std::size_t rank = 0; rank < devices_.size(); ++rank)
    if (colours[rank] >= 0) sets[colours[rank]].push_back(devices_[rank]);
  std::vector<CommunicationId> communicators;
  for (const auto& [colour, devices] : sets) communicators.emplace_back(devices, site);
  return communicators;
}

std::string CommunicationId::to_string() const {
  std::string text = "{";
  for (const DeviceId device : devices_) text += (text.size() == 1 ? "" : ", ") + device.to_string();
  return text + "}";
}

}  // namespace cox
