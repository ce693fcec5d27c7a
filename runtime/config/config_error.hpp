#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <source_location>
#include <string>

namespace cox {

/// A setting is invalid. The text names the setting, its source, its value, and what is allowed.
class ConfigError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Malformed,   ///< The value cannot be parsed as the type of the setting, or the file is not TOML.
    OutOfRange,  ///< The value has the right type, but is not allowed.
    UnknownKey,  ///< There is no such setting.
    Unreadable,  ///< The settings file cannot be read.
    Conflict,    ///< Values contradict each other, or one lacks another that it needs.
  };

  ConfigError(Kind kind, const std::string& what, std::source_location site = std::source_location::current())
      : Error(what, site), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

}  // namespace cox
