#include <coxswain/runtime/tensor/copy_plan.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <algorithm>
#include <string>

namespace cox {
namespace {

std::string describe(const CopyDescriptor& tensor) {
  return "a tensor of shape " + to_string(tensor.shape) + ", strides " + to_string(tensor.strides) +
         " and elements of " + std::to_string(tensor.elem_size) + " B";
}

bool strides_are_pitched(const Shape& shape, const Strides& strides) {
  const std::size_t rank = shape.size();
  if (rank == 0) return true;
  if (strides[rank - 1] != 1) return false;
  if (rank > 1 && strides[rank - 2] < shape[rank - 1]) return false;
  for (std::size_t i = 0; i + 2 < rank; ++i)
    if (checked_product(shape[i + 1], strides[i + 1]) != strides[i]) return false;
  return true;
}

}  // namespace

CopyPlan plan_copy(const CopyDescriptor& tensor, std::source_location site) {
  const auto refuse = [&](IoError::Kind kind, const std::string& what) { throw IoError(kind, what, site); };
  const Shape& shape = tensor.shape;
  const std::size_t rank = shape.size();
  if (rank != tensor.strides.size())
    refuse(IoError::Kind::RankMismatch, describe(tensor) + " has " + std::to_string(rank) + " extents and " +
                                            std::to_string(tensor.strides.size()) + " strides");
  if (tensor.elem_size == 0) refuse(IoError::Kind::ElementSize, describe(tensor) + " cannot be copied");
  const auto count = element_count(shape);
  const auto bytes = count ? checked_product(*count, tensor.elem_size) : count;
  if (!bytes) refuse(IoError::Kind::BufferTooBig, describe(tensor) + " exceeds the address space");
  if (*bytes == 0) return {};
  if (!tensor.binding.memory)
    refuse(IoError::Kind::NotFound, "an empty handle (moved from, or never assigned) was used as " + describe(tensor));
  if (!strides_are_pitched(shape, tensor.strides))
    refuse(IoError::Kind::UnsupportedStrides,
           describe(tensor) + " cannot be copied: only the last dimension may be padded");

  CopyPlan plan;
  plan.row_bytes = (rank == 0 ? 1 : shape.back()) * tensor.elem_size;
  plan.rows = *bytes / plan.row_bytes;
  const auto pitch =
      rank < 2 || plan.rows == 1 ? plan.row_bytes : checked_product(tensor.strides[rank - 2], tensor.elem_size);
  const auto before_last = pitch ? checked_product(plan.rows - 1, *pitch) : pitch;
  const auto reach = before_last ? checked_sum(*before_last, plan.row_bytes) : before_last;
  if (!reach || *reach > tensor.binding.size_in_used())
    refuse(IoError::Kind::OutOfBounds, describe(tensor) + " reaches beyond the " +
                                           format_byte_count(tensor.binding.size_in_used()) + " of its memory");
  plan.pitch = *pitch;
  return plan;
}

CopyPlan plan_copy(const CopyDescriptor& tensor, const Location& location, std::source_location site,
                   std::optional<std::size_t> host_size) {
  try {
    const CopyPlan plan = plan_copy(tensor, site);
    if (host_size) require_host_size(plan, tensor, *host_size, site);
    return plan;
  } catch (const IoError& error) {
    throw IoError(error.kind(), std::string(error.what()) + ", on " + location.to_string(), site);
  }
}

bool covers_allocation(const CopyPlan& rows, const CopyDescriptor& tensor, std::size_t bytes) noexcept {
  const std::size_t rank = tensor.shape.size();
  // The plan of a single row does not contain its pitch.
  const std::size_t pitch = rows.rows == 1 && rank >= 2 ? tensor.strides[rank - 2] * tensor.elem_size : rows.pitch;
  return rows.rows * std::max(pitch, rows.row_bytes) >= bytes;
}

void require_host_size(const CopyPlan& plan, const CopyDescriptor& tensor, std::size_t bytes,
                       std::source_location site) {
  if (plan.size() != bytes)
    throw IoError(IoError::Kind::SizeMismatch,
                  describe(tensor) + " needs " + format_byte_count(plan.size()) + ", but " + format_byte_count(bytes) +
                      " were given",
                  site);
}

}  // namespace cox
