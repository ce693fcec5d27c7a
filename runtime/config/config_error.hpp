#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <source_location>
#include <string>

namespace cox {

/// A setting is not what it must be. The text names the setting, where it came from, its value, and what is allowed.
class ConfigError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Malformed,   ///< The value cannot be read as the type that the setting has.
    OutOfRange,  ///< The value is of the right type, but not allowed.
    UnknownKey,  ///< There is no such setting.
    Unreadable,  ///< A file that is named cannot be opened.
  };

  ConfigError(Kind kind, const std::string& what, std::source_location site = std::source_location::current())
      : Error(what, site), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

}  // namespace cox
