#pragma once

#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>

namespace cox {

/// An upload of host bytes to a tensor in device memory. Bytes of a file are read in parts when the stream reaches the
/// upload. If that fails, the failure is added to the stream's errors, and the content of the tensor is undefined.
struct Upload {
  CopyDescriptor destination;
  Bytes source;
};

using Uploads = SmallVector<Upload, 1>;
using Downloads = SmallVector<CopyDescriptor, 1>;

}  // namespace cox
