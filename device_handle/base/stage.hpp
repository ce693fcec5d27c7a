#pragma once

#include <cstdint>

namespace cox {

/// Which of a device's two threads a service lives on. Upstream work (building graphs, fusing) overlaps with
/// Downstream work (dispatching kernels, copies and collectives).
enum class Stage : std::uint8_t { Upstream = 0, Downstream = 1 };

[[nodiscard]] constexpr const char* to_string(Stage stage) noexcept {
  return stage == Stage::Upstream ? "Upstream" : "Downstream";
}

}  // namespace cox
