#pragma once

#include <coxswain/runtime/base/shape.hpp>
#include <coxswain/runtime/handle/binding.hpp>

#include <cstddef>

namespace cox {

/// A tensor in device memory, as the source of a download or the destination of an upload.
struct CopyDescriptor {
  Binding binding;
  Shape shape;
  Strides strides;            ///< elements
  std::size_t elem_size = 1;  ///< bytes
};

}  // namespace cox
