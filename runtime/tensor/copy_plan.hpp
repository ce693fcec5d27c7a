#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>

#include <cstddef>
#include <optional>
#include <source_location>

namespace cox {

/// A tensor copy as rows: `rows` times `row_bytes`, dense on the host, `pitch` bytes apart on the device.
struct CopyPlan {
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  std::size_t pitch = 0;

  /// Bytes on the host side.
  [[nodiscard]] std::size_t size() const noexcept { return rows * row_bytes; }
  /// Whether one contiguous copy is enough.
  [[nodiscard]] bool is_linear() const noexcept { return rows <= 1 || pitch == row_bytes; }
};

/// Plans the copy of a tensor. Accepts row-major strides where only the last dimension is padded. Rank 0 is one
/// element; an empty tensor gives an empty plan, whatever its strides. Throws IoError: RankMismatch, ElementSize,
/// UnsupportedStrides, BufferTooBig, NotFound if the binding has no memory, and OutOfBounds if the tensor reaches
/// beyond its binding.
[[nodiscard]] CopyPlan plan_copy(const CopyDescriptor& tensor,
                                 std::source_location site = std::source_location::current());

/// Plans the copy of a tensor on a device: errors also name `location`. With `host_size`, also throws what
/// require_host_size throws.
[[nodiscard]] CopyPlan plan_copy(const CopyDescriptor& tensor, const Location& location, std::source_location site,
                                 std::optional<std::size_t> host_size = std::nullopt);

/// Whether a copy to the start of an allocation of `bytes` bytes writes all of it. The padding of a row counts as part
/// of the row.
[[nodiscard]] bool covers_allocation(const CopyPlan& rows, const CopyDescriptor& tensor, std::size_t bytes) noexcept;

/// Throws IoError SizeMismatch unless the plan copies exactly `bytes` bytes.
void require_host_size(const CopyPlan& plan, const CopyDescriptor& tensor, std::size_t bytes,
                       std::source_location site = std::source_location::current());

}  // namespace cox
