#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <cstddef>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace cox {

/// The devices that communicate with each other: a set, whatever order they are named in, compared by its members. What
/// names a communicator in the process. A device's rank is its place in the order of DeviceIds. One device is a valid
/// set: its collectives involve no other.
class CommunicationId {
 public:
  using Site = std::source_location;

  /// Throws CollectiveError Validation: no device, a device twice, devices of different types.
  CommunicationId(std::span<const DeviceId> devices, Site site = Site::current());
  CommunicationId(std::initializer_list<DeviceId> devices, Site site = Site::current())
      : CommunicationId(std::span(devices.begin(), devices.size()), site) {}
  CommunicationId(const std::vector<DeviceId>& devices, Site site = Site::current())
      : CommunicationId(std::span(devices), site) {}

  /// In the order of ranks.
  [[nodiscard]] std::span<const DeviceId> devices() const noexcept { return devices_; }
  [[nodiscard]] std::size_t world_size() const noexcept { return devices_.size(); }
  /// Throws CollectiveError Validation if the device is not among them.
  [[nodiscard]] std::size_t rank_of(DeviceId device, Site site = Site::current()) const;
  /// "{host:0, host:1}".
  [[nodiscard]] std::string to_string() const;

  /// The sets of the devices that have one colour, in the order of colours: what MPI and NCCL call a split. `colours`:
  /// one for each rank; those with a negative one are in no set. Throws CollectiveError Validation: another number of
  /// colours than devices.
  [[nodiscard]] std::vector<CommunicationId> split(std::span<const int> colours, Site site = Site::current()) const;

  friend auto operator<=>(const CommunicationId&, const CommunicationId&) = default;

 private:
  std::vector<DeviceId> devices_;
};

}  // namespace cox
