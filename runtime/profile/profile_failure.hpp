#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>

#include <exception>
#include <source_location>

namespace cox {

/// The error of a profile during which the stream failed with `error`. The kind is Launch if the first cause is a
/// LaunchError, else Server. cause() is that LaunchError or ServerError; any other error is wrapped in a ServerError.
[[nodiscard]] ProfileError profile_failure(const std::exception_ptr& error, const Location& location,
                                           std::source_location site);

}  // namespace cox
