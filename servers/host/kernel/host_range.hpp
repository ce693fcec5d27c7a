#pragma once

#include <cstddef>

namespace cox::detail {

/// A window of host device memory that stream work may access after the access has been recorded (L11).
struct HostRange {
  std::byte* data = nullptr;
  std::size_t size = 0;  ///< bytes
};

}  // namespace cox::detail
