#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cox::detail {

/// The kind and the architecture of a kernel image, as far as its bytes show them.
struct KernelImage {
  enum class Kind : std::uint8_t { Ptx, Cubin, Fatbin, Unknown };
  Kind kind = Kind::Unknown;
  int architecture = 0;  ///< of a cubin: 90 for 9.0; 0: unknown

  [[nodiscard]] static KernelImage inspect(std::span<const std::byte> image) noexcept;

  /// Why a device of compute capability `major`.`minor` cannot run the image; std::nullopt if it can, as far as the
  /// bytes show.
  [[nodiscard]] std::optional<std::string> refusal(int major, int minor) const;
};

}  // namespace cox::detail
