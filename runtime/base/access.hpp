#pragma once

#include <cstdint>

namespace cox {

/// What an operation does to a buffer. Readers run side by side; a writer waits for everyone before it.
///
/// It also says what becomes of memory whose producer failed (L14): Read and Write refuse it, since both may read it.
/// Overwrite does not look at it, and makes it good again if the buffer is a whole allocation.
enum class Access : std::uint8_t {
  Read,
  Write,      ///< reads, too, or writes only a part
  Overwrite,  ///< writes every byte of the buffer and reads none that it has not written: the author's promise
};

[[nodiscard]] constexpr bool writes(Access access) noexcept { return access != Access::Read; }
[[nodiscard]] constexpr bool reads(Access access) noexcept { return access != Access::Overwrite; }

}  // namespace cox
