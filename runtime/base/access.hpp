#pragma once

#include <cstdint>

namespace cox {

/// What an operation does to a buffer. Readers run side by side; a writer waits for everyone before it.
enum class Access : std::uint8_t { Read, Write };

}  // namespace cox
