#pragma once

#include <coxswain/runtime/base/shape.hpp>
#include <coxswain/runtime/handle/binding.hpp>

#include <cstddef>

namespace cox {

/// A tensor in device memory, as an upload or download finds it.
struct CopyDescriptor {
  Binding binding;
  Shape shape;
  Strides strides;            ///< elements
  std::size_t elem_size = 1;  ///< bytes
};

}  // namespace cox
