#pragma once

#include <cstdint>

namespace cox {

/// Where failures of profiled work are reported. In both cases the duration of the profile fails with the first
/// failure.
enum class ProfileFailures : std::uint8_t {
  OfProfile,  ///< Only by the profile: the stream discards them.
  OfStream,   ///< Also by the stream, as if the work had not been profiled.
};

}  // namespace cox
