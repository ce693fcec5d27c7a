#pragma once

#include <cstdint>

namespace cox {

/// How an operation accesses a buffer. Reads may overlap; a write waits for all earlier accesses.
///
/// The access also decides how poisoned memory is handled (L14). Read and Write refuse it, because both may read it.
/// Overwrite accepts it, and clears the poison if the buffer is a whole allocation.
enum class Access : std::uint8_t {
  Read,
  Write,      ///< may also read, or write only a part
  Overwrite,  ///< writes every byte and reads only bytes that it has written; guaranteed by the caller
};

[[nodiscard]] constexpr bool writes(Access access) noexcept { return access != Access::Read; }
[[nodiscard]] constexpr bool reads(Access access) noexcept { return access != Access::Overwrite; }

}  // namespace cox
