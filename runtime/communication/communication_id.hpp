#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <cstddef>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace cox {

/// The set of devices that communicate with each other, which identifies a communicator in the process. The order in
/// which the devices are given does not matter; two ids are equal if they have the same devices. The rank of a device
/// is its position in the order of DeviceIds. One device is a valid set: its collectives involve no other device.
///
/// If it has devices of other processes of the world, all its devices have their names in the world (DeviceId::process
/// is not 0), also those of this process, which may be given by either name. A set of devices of this process alone has
/// their names in the process.
class CommunicationId {
 public:
  using Site = std::source_location;

  /// Throws CollectiveError Validation if there is no device, a device twice, or devices of different types.
  CommunicationId(std::span<const DeviceId> devices, Site site = Site::current());
  CommunicationId(std::initializer_list<DeviceId> devices, Site site = Site::current())
      : CommunicationId(std::span(devices.begin(), devices.size()), site) {}
  CommunicationId(const std::vector<DeviceId>& devices, Site site = Site::current())
      : CommunicationId(std::span(devices), site) {}

  /// The devices in the order of their ranks.
  [[nodiscard]] std::span<const DeviceId> devices() const noexcept { return devices_; }
  [[nodiscard]] std::size_t world_size() const noexcept { return devices_.size(); }
  /// Throws CollectiveError Validation if the device is not among them. A device of this process may be given by either
  /// name.
  [[nodiscard]] std::size_t rank_of(DeviceId device, Site site = Site::current()) const;
  [[nodiscard]] bool contains(DeviceId device) const noexcept;
  /// Whether it has devices of other processes.
  [[nodiscard]] bool spans_processes() const noexcept { return devices_.front().process != 0; }
  /// "{host:0, host:1}".
  [[nodiscard]] std::string to_string() const;

  /// Divides the devices into one set for each colour, in the order of colours, as MPI and NCCL split a communicator.
  /// `colours` has one entry for each rank; a device with a negative colour is in no set. Throws CollectiveError
  /// Validation if the number of colours is not the number of devices.
  [[nodiscard]] std::vector<CommunicationId> split(std::span<const int> colours, Site site = Site::current()) const;

  friend auto operator<=>(const CommunicationId&, const CommunicationId&) = default;

 private:
  [[nodiscard]] DeviceId name_of(DeviceId device) const noexcept;

  std::vector<DeviceId> devices_;
};

}  // namespace cox
