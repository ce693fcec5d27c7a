#include <coxswain/runtime/tensor/contiguous_layout_policy.hpp>

#include <coxswain/runtime/error/io_error.hpp>

namespace cox {

TensorExtent ContiguousLayoutPolicy::extent(const MemoryLayoutDescriptor& tensor) const {
  if (tensor.elem_size == 0)
    throw IoError(IoError::Kind::ElementSize, "a tensor of shape " + to_string(tensor.shape) + " has elements of 0 B");
  const auto count = element_count(tensor.shape);
  const auto size = count ? checked_product(*count, tensor.elem_size) : count;
  if (!size)
    throw IoError(IoError::Kind::BufferTooBig, "a tensor of shape " + to_string(tensor.shape) + " with elements of " +
                                                   std::to_string(tensor.elem_size) + " B exceeds the address space");
  return {*size, contiguous_strides(tensor.shape)};
}

}  // namespace cox
