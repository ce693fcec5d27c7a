#pragma once

#include <chrono>
#include <string>

namespace cox::detail::world {

/// How long the other end of a connection has been silent. One thread at a time.
class Silence {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// To be called periodically. Reports a silence of 5 s or more once, as that of `name`. Returns whether it has lasted
  /// for `limit` or longer while something was awaited from the other end. `heard`: when it was heard last, or this end
  /// began to listen.
  [[nodiscard]] bool is_too_long(const std::string& name, Time heard, bool is_awaited, std::chrono::nanoseconds limit,
                                 Time now);

 private:
  bool is_reported_ = false;
  Time awaited_since_ = Time::max();  // max(): nothing is awaited
};

}  // namespace cox::detail::world
