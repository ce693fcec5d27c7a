#pragma once

#include <cstdint>

namespace cox {

/// What an access to Bytes may do to be served.
enum class AccessPolicy : std::uint8_t {
  AllowCopy,  ///< Bring lazy bytes into memory; copy shared bytes before they are written to.
  ZeroCopy,   ///< Neither: an access that needs it is IoError WouldCopy.
};

}  // namespace cox
