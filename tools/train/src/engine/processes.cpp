#include <engine/devices.hpp>
#include <engine/processes.hpp>

#include <coxswain/collectives/world/world_error.hpp>
#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <string>

namespace train {
namespace {

cox::World join(const Options& options) try {
  return cox::World::join(local_devices(options));
} catch (const cox::WorldError& error) {
  throw WorldFailed(error.what());
}

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
    : world_(join(options)),
      ranks_(world_.devices(options.device_type)),
      one_of_each_(first_devices(world_, options.device_type)),
      own_device_(local_devices(options).front()) {
  options.devices = ranks_.world_size();
}

void Processes::fail(const std::exception_ptr& error) {
  if (is_unsupported(error)) std::rethrow_exception(error);
  throw WorldFailed("the processes of the world cannot exchange values: " + cox::error_chain(error));
}

bool is_unsupported(const std::exception_ptr& error) {
  return cox::find_cause<cox::CollectiveError>(error, cox::CollectiveError::Kind::Unsupported) != nullptr;
}

}  // namespace train
