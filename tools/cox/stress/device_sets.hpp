#pragma once

#include <coxswain/tools/cox/stress/random.hpp>

#include <cstddef>
#include <vector>

namespace cox::stress {

/// Indices of devices, ascending.
using DeviceSet = std::vector<std::size_t>;

/// The sets of devices that have communicators in a run: all devices, pairs, and some random sets, which overlap. Equal
/// seeds give equal sets; no set occurs twice. `devices` is at least 2.
[[nodiscard]] std::vector<DeviceSet> choose_device_sets(std::size_t devices, Random& random);

}  // namespace cox::stress
