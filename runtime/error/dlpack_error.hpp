#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <source_location>
#include <string>

namespace cox {

/// A tensor cannot be exchanged through DLPack as it is described. See from_dlpack and to_dlpack.
class DlpackError : public Error {
 public:
  enum class Kind : std::uint8_t {
    UnsupportedVersion,  ///< The major version is not 1, so that nothing but the deleter may be used.
    WrongDevice,         ///< The tensor is in another kind of memory, or on another device.
    UnsupportedType,     ///< No ElementType corresponds to the data type, or it has several lanes.
    ReadOnly,            ///< The producer does not allow writes.
    InvalidShape,        ///< The rank or an extent is negative, or the tensor exceeds the address space.
    UnsupportedStrides,  ///< A stride is negative, or the strides are not provably free of overlap.
  };

  DlpackError(Kind kind, const std::string& what, std::source_location site = std::source_location::current())
      : Error(what, site), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

[[nodiscard]] const char* to_string(DlpackError::Kind kind) noexcept;

}  // namespace cox
