#pragma once

#include <coxswain/runtime/unique_id.hpp>

namespace cox {

/// Names one captured graph of a server.
using GraphId = UniqueId<struct GraphKind>;

}  // namespace cox
