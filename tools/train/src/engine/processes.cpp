#include <engine/devices.hpp>
#include <engine/processes.hpp>

#include <coxswain/collectives/world/world_error.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace train {
namespace {

std::vector<cox::DeviceId> first_devices(const cox::World& world, std::uint16_t type) {
  std::vector<cox::DeviceId> devices;
  for (std::size_t process = 0; process < world.size(); ++process) {
    const auto& all = world.processes()[process].devices;
    const auto first = std::ranges::find_if(all, [type](cox::DeviceId device) { return device.type == type; });
    if (first == all.end())
      throw WrongArguments("--devices: process " + std::to_string(process) + " has another kind of devices");
    devices.push_back(*first);
  }
  return devices;
}

}  // namespace

Processes::Processes(Options& options)
    : world_(cox::World::join(local_devices(options))),
      ranks_(world_.devices(options.device_type)),
      one_of_each_(first_devices(world_, options.device_type)),
      own_device_(local_devices(options).front()) {
  options.devices = ranks_.world_size();
}

bool is_loss_of_world(const std::exception_ptr& error) {
  using Kind = cox::CollectiveError::Kind;
  if (cox::find_cause<cox::WorldError>(error) != nullptr) return true;
  return std::ranges::any_of(std::array{Kind::ProcessGone, Kind::ProcessSilent, Kind::WorldGone},
                             [&](Kind kind) { return cox::find_cause<cox::CollectiveError>(error, kind) != nullptr; });
}

}  // namespace train
