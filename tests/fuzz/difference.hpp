#pragma once

#include <stdexcept>

namespace cox::fuzz {

/// The library did something else than the model.
class Difference : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cox::fuzz
