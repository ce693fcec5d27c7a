#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <utility>

namespace cox {

/// A call of a Store failed, or a store cannot be opened. The text names the store and the key.
class StoreError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Timeout,      ///< The deadline has passed. A set, add or compare_set may have been done nevertheless.
    Unreachable,  ///< The store cannot be reached or opened, or the connection to it is lost.
    Protocol,     ///< What the store sent is not part of its protocol, or the value that add changes is not a number.
    Refused,      ///< The token is wrong, or the store belongs to another run.
    TooLarge,     ///< A key or a value is longer than Store allows, or the store is full.
    Unsupported,  ///< This kind of store does not have the call.
  };

  StoreError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
             std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

[[nodiscard]] const char* to_string(StoreError::Kind kind) noexcept;

}  // namespace cox
