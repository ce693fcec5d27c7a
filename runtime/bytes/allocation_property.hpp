#pragma once

#include <cstdint>

namespace cox {

/// Where host bytes are stored. A server selects the path of an upload by it. Pinned memory can be copied from directly
/// and concurrently with kernels; File and Device bytes are not in memory until the first access.
enum class AllocationProperty : std::uint8_t {
  Native,  ///< Pageable memory of this process.
  Pinned,  ///< Page-locked memory that a server allocated.
  File,    ///< A range of a file, read at the first access.
  Device,  ///< Memory of a device, copied to the host at the first access.
  Other,   ///< Memory of another library, with unknown properties.
};

[[nodiscard]] const char* to_string(AllocationProperty property) noexcept;

}  // namespace cox
