#pragma once

#include <coxswain/runtime/tensor/copy_plan.hpp>

#include <cstddef>
#include <vector>

namespace cox::detail {

/// Rows that are copied in one step: dense on the host, `pitch` bytes apart on the device.
struct CopyPiece {
  std::size_t part = 0;  ///< index of the part in its task
  std::size_t host_offset = 0;
  std::size_t device_offset = 0;
  std::size_t rows = 1;
  std::size_t row_bytes = 0;
  std::size_t pitch = 0;

  [[nodiscard]] std::size_t size() const noexcept { return rows * row_bytes; }
};

/// Appends the pieces of a copy, each of at most `chunk` bytes, front to back: whole rows where a row fits.
void append_pieces(std::vector<CopyPiece>& pieces, std::size_t part, const CopyPlan& plan, std::size_t chunk);

}  // namespace cox::detail
