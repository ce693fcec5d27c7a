#include <coxswain/servers/cuda/copy/copy_pieces.hpp>

#include <algorithm>

namespace cox::detail {
namespace {

void append_dense(std::vector<CopyPiece>& pieces, std::size_t part, std::size_t host_offset, std::size_t device_offset,
                  std::size_t bytes, std::size_t chunk) {
  for (std::size_t done = 0; done < bytes; done += chunk) {
    const std::size_t size = std::min(chunk, bytes - done);
    pieces.push_back({part, host_offset + done, device_offset + done, 1, size, size});
  }
}

}  // namespace

void append_pieces(std::vector<CopyPiece>& pieces, std::size_t part, const CopyPlan& plan, std::size_t chunk) {
  if (plan.size() == 0) return;
  if (plan.is_linear()) return append_dense(pieces, part, 0, 0, plan.size(), chunk);
  const std::size_t rows_at_once = chunk / plan.row_bytes;
  if (rows_at_once == 0) {
    for (std::size_t row = 0; row < plan.rows; ++row)
      append_dense(pieces, part, row * plan.row_bytes, row * plan.pitch, plan.row_bytes, chunk);
    return;
  }
  for (std::size_t row = 0; row < plan.rows; row += rows_at_once)
    pieces.push_back({part, row * plan.row_bytes, row * plan.pitch, std::min(rows_at_once, plan.rows - row),
                      plan.row_bytes, plan.pitch});
}

}  // namespace cox::detail
