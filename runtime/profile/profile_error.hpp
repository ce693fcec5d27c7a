#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>

namespace cox {

/// A profile could not be begun, ended or measured.
class ProfileError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Unknown,
    NotRegistered,  ///< The token was never issued on the stream, or its profile has ended.
    Launch,         ///< A launch failed while the profile was open; cause() is the LaunchError.
    Server,         ///< The server failed while the profile was open; cause() is the ServerError.
  };

  ProfileError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
               std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

}  // namespace cox
