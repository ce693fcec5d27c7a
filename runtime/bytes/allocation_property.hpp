#pragma once

#include <cstdint>

namespace cox {

/// Where host bytes are kept: what a server looks at to choose the way of an upload. Pinned memory can be copied from
/// directly and side by side with kernels; File and Device bytes are not in memory until someone asks for them.
enum class AllocationProperty : std::uint8_t {
  Native,  ///< Pageable memory of this process.
  Pinned,  ///< Page-locked memory that a server gave out.
  File,    ///< A range of a file, read at the first access.
  Device,  ///< Memory of a device, copied to the host at the first access.
  Other,   ///< Memory of another library, of which nothing is known.
};

[[nodiscard]] const char* to_string(AllocationProperty property) noexcept;

}  // namespace cox
