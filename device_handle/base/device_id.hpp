#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace cox {

/// Names one device of the process. `type` is the kind of hardware (0 = host memory, 1 = CUDA), `index` its ordinal
/// among devices of that kind. Ordered by type, then index.
struct DeviceId {
  std::uint16_t type = 0;
  std::uint16_t index = 0;

  friend constexpr auto operator<=>(DeviceId, DeviceId) = default;

  /// "host:0", "cuda:1", or "type7:0" for a kind without a name of its own. Used in errors, traces, metrics and by
  /// `cox`.
  [[nodiscard]] std::string to_string() const {
    const std::string kind = type == 0 ? "host" : type == 1 ? "cuda" : "type" + std::to_string(type);
    return kind + ":" + std::to_string(index);
  }
};

}  // namespace cox

template <>
struct std::hash<cox::DeviceId> {
  std::size_t operator()(cox::DeviceId id) const noexcept {
    return (static_cast<std::size_t>(id.type) << 16U) | id.index;
  }
};
