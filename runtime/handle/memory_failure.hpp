#pragma once

#include <cstdint>
#include <exception>

namespace cox {

/// Why the contents of an allocation are not to be used (L14): an operation that should have written it failed, or
/// would itself have read such memory.
struct MemoryFailure {
  enum class Contents : std::uint8_t {
    Unchanged,  ///< Nothing was written: the operation never started.
    Undefined,  ///< Some of it may have been written.
  };
  std::exception_ptr cause;  ///< what the first operation failed with
  Contents contents = Contents::Undefined;
};

}  // namespace cox
