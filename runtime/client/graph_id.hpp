#pragma once

#include <coxswain/runtime/base/unique_id.hpp>

namespace cox {

/// Identifies one captured graph of a server.
using GraphId = UniqueId<struct GraphKind>;

}  // namespace cox
