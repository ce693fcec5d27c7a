#pragma once

#include <cstdint>

namespace cox {

/// Whose the failures of profiled work are. In both cases the profile's duration fails with the first of them.
enum class ProfileFailures : std::uint8_t {
  OfProfile,  ///< The profile's alone: the stream forgets them.
  OfStream,   ///< The stream's, too, as if nothing had been profiled.
};

}  // namespace cox
