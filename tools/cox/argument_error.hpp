#pragma once

#include <stdexcept>

namespace cox::tools {

/// What the user typed cannot be carried out as it stands. `what()` is one line that says what was expected.
class ArgumentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cox::tools
