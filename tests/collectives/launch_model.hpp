#pragma once

#include <coxswain/device_handle/device_id.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace cox::test {

/// Devices that do their launches strictly one after the other, and a collective only when it has come to the front on
/// all its devices, as the kernels of NCCL do: each waits on its device for the others.
class LaunchModel {
 public:
  /// One operation of one communicator.
  using Operation = std::pair<std::size_t, std::uint64_t>;

  explicit LaunchModel(std::size_t devices) : lines_(devices) {}

  /// Not under a lock: the caller says that launches of one device do not overlap.
  void launch(DeviceId device, Operation operation) { lines_[device.index].push_back(operation); }
  [[nodiscard]] const std::vector<Operation>& line(std::size_t device) const { return lines_[device]; }

  /// Runs what was launched, on communicators of these devices. Returns how many launches stay stuck for ever.
  [[nodiscard]] std::size_t stuck(const std::vector<CommunicationId>& communicators) const {
    std::vector<std::size_t> front(lines_.size());
    for (bool moved = true; moved;) {
      moved = false;
      std::map<Operation, std::size_t> in_front;
      for (std::size_t d = 0; d < lines_.size(); ++d)
        if (front[d] < lines_[d].size()) ++in_front[lines_[d][front[d]]];
      for (std::size_t d = 0; d < lines_.size(); ++d) {
        if (front[d] == lines_[d].size()) continue;
        const Operation operation = lines_[d][front[d]];
        if (in_front[operation] != communicators[operation.first].world_size()) continue;
        ++front[d];
        moved = true;
      }
    }
    std::size_t left = 0;
    for (std::size_t d = 0; d < lines_.size(); ++d) left += lines_[d].size() - front[d];
    return left;
  }

 private:
  std::vector<std::vector<Operation>> lines_;
};

}  // namespace cox::test
