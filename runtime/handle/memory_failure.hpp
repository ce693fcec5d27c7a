#pragma once

#include <cstdint>
#include <exception>

namespace cox {

/// Why the contents of an allocation must not be used (L14): an operation that should have written it failed, or was
/// refused because it would have read such memory.
struct MemoryFailure {
  enum class Contents : std::uint8_t {
    Unchanged,  ///< Nothing was written: the operation never started.
    Undefined,  ///< Some of it may have been written.
  };
  std::exception_ptr cause;  ///< error of the first operation that failed
  Contents contents = Contents::Undefined;
};

}  // namespace cox
