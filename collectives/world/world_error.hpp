#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>

namespace cox {

/// A process could not join its world.
class WorldError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Timeout,      ///< Processes were missing at the deadline; what() names them.
    Refused,      ///< The leader has refused this process: another token, run, version or number; what() says why.
    Unreachable,  ///< A process could not be reached, or its connection ended.
  };

  WorldError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
             std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

}  // namespace cox
