#pragma once

#include <stdexcept>

namespace cox::tools {

/// Thrown for arguments or settings that a command cannot use. `what()` is one line that says what is expected.
class ArgumentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cox::tools
