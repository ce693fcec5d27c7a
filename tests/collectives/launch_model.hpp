#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cox::test {

/// Devices that do their launches strictly one after the other, and a collective only when it has come to the front on
/// all its devices, as the kernels of NCCL do: each waits on its device for the others. A launch may also wait for its
/// device's compute stream, which waits for collectives.
class LaunchModel {
 public:
  /// One operation of one communicator.
  using Operation = std::pair<std::size_t, std::uint64_t>;
  using Operations = std::vector<Operation>;

  explicit LaunchModel(std::size_t devices) : lines_(devices), refused_(devices) {}

  /// Not under a lock: the caller says that calls for one device do not overlap.
  void launch(DeviceId device, Operation operation, Operations after = {}) {
    lines_[device.index].push_back({operation, std::move(after)});
  }
  /// Nobody waits for it any more.
  void refuse(DeviceId device, Operation operation) { refused_[device.index].push_back(operation); }

  [[nodiscard]] std::set<Operation> refused() const {
    std::set<Operation> all;
    for (const Operations& refused : refused_) all.insert(refused.begin(), refused.end());
    return all;
  }
  /// Runs what was launched, on communicators of these devices. Returns how many launches stay stuck for ever.
  [[nodiscard]] std::size_t stuck(const std::vector<CommunicationId>& communicators) const {
    std::set<Operation> ended = refused();
    std::vector<std::size_t> front(lines_.size());
    for (bool moved = true; moved;) {
      moved = false;
      std::map<Operation, std::size_t> begun;
      for (std::size_t d = 0; d < lines_.size(); ++d)
        if (front[d] < lines_[d].size() && may_begin(lines_[d][front[d]], ended))
          ++begun[lines_[d][front[d]].operation];
      for (std::size_t d = 0; d < lines_.size(); ++d) {
        if (front[d] == lines_[d].size()) continue;
        const Operation operation = lines_[d][front[d]].operation;
        if (begun[operation] != communicators[operation.first].world_size()) continue;
        ended.insert(operation);
        ++front[d];
        moved = true;
      }
    }
    std::size_t left = 0;
    for (std::size_t d = 0; d < lines_.size(); ++d) left += lines_[d].size() - front[d];
    return left;
  }

 private:
  struct Launched {
    Operation operation;
    Operations after;
  };

  static bool may_begin(const Launched& launched, const std::set<Operation>& ended) {
    return std::ranges::all_of(launched.after, [&](const Operation& operation) { return ended.contains(operation); });
  }

  std::vector<std::vector<Launched>> lines_;
  std::vector<Operations> refused_;
};

}  // namespace cox::test
