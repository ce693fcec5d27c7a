#include <coxswain/servers/host/detail/host_copy.hpp>

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

}  // namespace

void upload(const CopyPlan& plan, const std::byte* host, std::byte* device) noexcept {
  copy_rows(plan, host, plan.row_bytes, device, plan.pitch);
}

void download(const CopyPlan& plan, const std::byte* device, std::byte* host) noexcept {
  copy_rows(plan, device, plan.pitch, host, plan.row_bytes);
}

}  // namespace cox::detail
