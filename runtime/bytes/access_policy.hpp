#pragma once

#include <cstdint>

namespace cox {

/// What an access to Bytes is allowed to do.
enum class AccessPolicy : std::uint8_t {
  AllowCopy,  ///< Read lazy bytes into memory, and copy shared bytes before a write.
  ZeroCopy,   ///< Neither: an access that would need one of them throws IoError WouldCopy.
};

}  // namespace cox
