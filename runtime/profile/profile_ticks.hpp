#pragma once

#include <chrono>

namespace cox {

/// The times at which a profiled piece of work began and ended.
struct ProfileTicks {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;

  [[nodiscard]] std::chrono::nanoseconds duration() const noexcept { return end - begin; }

  friend bool operator==(const ProfileTicks&, const ProfileTicks&) = default;
};

}  // namespace cox
