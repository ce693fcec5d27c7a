#include <coxswain/servers/host/memory/host_copy.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <algorithm>
#include <cstring>

namespace cox::detail {
namespace {

void copy_rows(const CopyPlan& plan, const std::byte* from, std::size_t from_pitch, std::byte* to,
               std::size_t to_pitch) noexcept {
  if (plan.size() == 0) return;
  if (plan.is_linear()) {
    std::memcpy(to, from, plan.size());
    return;
  }
  for (std::size_t row = 0; row < plan.rows; ++row)
    std::memcpy(to + row * to_pitch, from + row * from_pitch, plan.row_bytes);
}

void read_rows(const CopyPlan& plan, BytesReader from, std::byte* to) {
  if (plan.is_linear()) return from.read({to, plan.size()});
  const std::size_t rows_at_once = std::min(plan.rows, upload_chunk / plan.row_bytes);
  if (rows_at_once < 2) {
    for (std::size_t row = 0; row < plan.rows; ++row) from.read({to + row * plan.pitch, plan.row_bytes});
    return;
  }
  Bytes chunk = Bytes::uninitialized(rows_at_once * plan.row_bytes);
  CopyPlan part = plan;
  for (std::size_t row = 0; row < plan.rows; row += part.rows) {
    part.rows = std::min(rows_at_once, plan.rows - row);
    from.read(chunk.span().first(part.size()));
    copy_rows(part, chunk.data(), part.row_bytes, to + row * part.pitch, part.pitch);
  }
}

}  // namespace

void upload(const CopyPlan& plan, const Bytes& host, std::byte* device) {
  if (plan.size() == 0) return;
  if (!host.is_resident()) return read_rows(plan, BytesReader(host), device);
  copy_rows(plan, host.data(), plan.row_bytes, device, plan.pitch);
}

void download(const CopyPlan& plan, const std::byte* device, std::byte* host) noexcept {
  copy_rows(plan, device, plan.pitch, host, plan.row_bytes);
}

}  // namespace cox::detail
