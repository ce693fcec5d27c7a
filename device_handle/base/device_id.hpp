#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace cox {

/// Names one device. `type` is the kind of hardware (0 = host memory, 1 = CUDA), `index` its ordinal among devices of
/// that kind in its process. `process`: 0 for a device of this process, otherwise the number of its process in the
/// world, plus 1; only communicators hold such names. Ordered by type, then process, then index.
struct DeviceId {
  std::uint16_t type = 0;
  std::uint16_t index = 0;
  std::uint16_t process = 0;

  friend constexpr bool operator==(DeviceId, DeviceId) = default;
  friend constexpr std::strong_ordering operator<=>(DeviceId a, DeviceId b) noexcept { return a.key() <=> b.key(); }

  /// "host:0", "cuda:1", or "type7:0" for a kind without a name of its own; "p2/cuda:1" for a device of process 2 of
  /// the world. Used in errors, traces, metrics and by `cox`.
  [[nodiscard]] std::string to_string() const {
    const std::string kind = type == 0 ? "host" : type == 1 ? "cuda" : "type" + std::to_string(type);
    const std::string place = process == 0 ? "" : "p" + std::to_string(process - 1) + "/";
    return place + kind + ":" + std::to_string(index);
  }

  /// All members in one number, which has their order.
  [[nodiscard]] constexpr std::uint64_t key() const noexcept {
    return (std::uint64_t{type} << 32U) | (std::uint64_t{process} << 16U) | index;
  }
};

}  // namespace cox

template <>
struct std::hash<cox::DeviceId> {
  std::size_t operator()(cox::DeviceId id) const noexcept { return static_cast<std::size_t>(id.key()); }
};
