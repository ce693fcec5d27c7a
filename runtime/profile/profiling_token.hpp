#pragma once

#include <coxswain/runtime/base/unique_id.hpp>

namespace cox {

/// Identifies one open profile of a stream.
using ProfilingToken = UniqueId<struct ProfileKind>;

}  // namespace cox
