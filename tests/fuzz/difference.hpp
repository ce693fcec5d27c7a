#pragma once

#include <stdexcept>

namespace cox::fuzz {

/// The library did something else than the model.
class Difference : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A read gave other bytes than the model has, or bytes that a failed operation has left.
class WrongContents : public Difference {
 public:
  using Difference::Difference;
};

}  // namespace cox::fuzz
