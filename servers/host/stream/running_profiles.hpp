#pragma once

#include <coxswain/runtime/error/taken_error.hpp>
#include <coxswain/runtime/profile/profile_ticks.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace cox::detail {

/// A profile as the stream sees it: what its begin and its end share.
struct HostProfile {
  std::uint64_t begin_piece = 0;  ///< device thread: the piece of the stream that begins it
  std::chrono::steady_clock::time_point begin;
  std::exception_ptr failure;             ///< the first of the work in between
  std::shared_ptr<ErrorReceipt> receipt;  ///< of what the stream has given up to the profile
};

/// The profiles of a stream between their begin and their end. In the work of the stream only.
class RunningProfiles {
 public:
  void begin(std::shared_ptr<HostProfile> profile) {
    running_.push_back(profile);
    profile->begin = std::chrono::steady_clock::now();
  }
  [[nodiscard]] ProfileTicks end(const std::shared_ptr<HostProfile>& profile) noexcept {
    const auto now = std::chrono::steady_clock::now();
    std::erase(running_, profile);
    return {profile->begin, now};
  }
  /// Work between begin and end has failed.
  void note(const std::exception_ptr& error) noexcept {
    for (const auto& profile : running_)
      if (profile->failure == nullptr) profile->failure = error;
  }

 private:
  std::vector<std::shared_ptr<HostProfile>> running_;
};

}  // namespace cox::detail
