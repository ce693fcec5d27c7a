#pragma once

#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstddef>
#include <span>

namespace cox::stress {

/// Compares the result of a read with the values that the CPU computed. Reports the first byte that differs (data).
void check_bytes(Truth& truth, const Ticket& ticket, std::span<const std::uint32_t> expected,
                 std::span<const std::byte> got);

}  // namespace cox::stress
