#pragma once

#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>

namespace cox {

/// Host bytes on their way into a tensor of device memory. Those of a file are read, part after part, when the stream
/// comes to them; what fails then joins the stream's errors, and the tensor's content is not defined.
struct Upload {
  CopyDescriptor destination;
  Bytes source;
};

using Uploads = SmallVector<Upload, 1>;
using Downloads = SmallVector<CopyDescriptor, 1>;

}  // namespace cox
