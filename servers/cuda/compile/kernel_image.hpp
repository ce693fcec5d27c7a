#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cox::detail {

/// What the first bytes of a kernel's image tell.
struct KernelImage {
  enum class Kind : std::uint8_t { Ptx, Cubin, Fatbin, Unknown };
  Kind kind = Kind::Unknown;
  int architecture = 0;  ///< of a cubin, as 90 for 9.0; 0: not known

  [[nodiscard]] static KernelImage inspect(std::span<const std::byte> image) noexcept;

  /// Why a device of compute capability `major`.`minor` cannot run it; nothing if, as far as can be seen, it can.
  [[nodiscard]] std::optional<std::string> refusal(int major, int minor) const;
};

}  // namespace cox::detail
