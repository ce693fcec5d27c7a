#pragma once

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/base/location.hpp>

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <utility>

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

/// The error of a profile during which the stream failed with `error`. The kind is Launch if the first cause is a
/// LaunchError, else Server. cause() is that LaunchError or ServerError; any other error is wrapped in a ServerError.
[[nodiscard]] ProfileError profile_failure(const std::exception_ptr& error, const Location& location,
                                           std::source_location site);

}  // namespace cox
