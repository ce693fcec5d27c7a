#pragma once

#include <coxswain/tools/cox/stress/random.hpp>

#include <cstddef>
#include <vector>

namespace cox::stress {

/// Indices of devices, ascending.
using DeviceSet = std::vector<std::size_t>;

/// The sets of devices that have communicators in a run: all, pairs, and some others by chance, which overlap. The
/// same for equal seeds; none is there twice. At least two devices.
[[nodiscard]] std::vector<DeviceSet> choose_device_sets(std::size_t devices, Random& random);

}  // namespace cox::stress
