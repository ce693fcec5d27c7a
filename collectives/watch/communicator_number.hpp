#pragma once

#include <cstdint>

namespace cox {

/// Names a communicator that was opened. Never used again for another.
enum class CommunicatorNumber : std::uint64_t {};

}  // namespace cox
