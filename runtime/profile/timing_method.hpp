#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox {

/// The clock that measured a profile.
enum class TimingMethod : std::uint8_t {
  System,  ///< The host's clock, read when the stream reached the begin and the end.
  Device,  ///< The device's own clock, read by events of the stream.
};

inline constexpr std::array<std::string_view, 2> timing_method_names{"system", "device"};
static_assert(timing_method_names.size() == static_cast<std::size_t>(TimingMethod::Device) + 1);

}  // namespace cox
