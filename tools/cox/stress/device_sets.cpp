#include <coxswain/tools/cox/stress/device_sets.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace cox::stress {
namespace {

DeviceSet some_of(std::size_t devices, std::size_t count, Random& random) {
  DeviceSet all(devices);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i)
    std::swap(all[i], all[i + static_cast<std::size_t>(random.below(devices - i))]);
  all.resize(count);
  std::sort(all.begin(), all.end());
  return all;
}

void add(std::vector<DeviceSet>& sets, DeviceSet set) {
  if (std::find(sets.begin(), sets.end(), set) == sets.end()) sets.push_back(std::move(set));
}

}  // namespace

std::vector<DeviceSet> choose_device_sets(std::size_t devices, Random& random) {
  constexpr std::size_t few = 5;         // devices: all pairs of so many or fewer
  constexpr std::size_t most_pairs = 8;  // of more devices
  constexpr std::size_t others = 4;
  std::vector<DeviceSet> sets{some_of(devices, devices, random)};
  if (devices <= few) {
    for (std::size_t a = 0; a < devices; ++a)
      for (std::size_t b = a + 1; b < devices; ++b) add(sets, {a, b});
  } else {
    for (std::size_t i = 0; i < most_pairs; ++i) add(sets, some_of(devices, 2, random));
  }
  for (std::size_t i = 0; i < others; ++i)
    add(sets, some_of(devices, 2 + static_cast<std::size_t>(random.below(devices - 1)), random));
  return sets;
}

}  // namespace cox::stress
