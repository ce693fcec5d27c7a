#pragma once

#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/runtime/base/unique_id.hpp>

namespace cox {

/// Makes GraphId a type of its own.
struct COX_VISIBILITY_DEFAULT GraphKind{};

/// Identifies one captured graph of a server.
using GraphId = UniqueId<GraphKind>;

}  // namespace cox
