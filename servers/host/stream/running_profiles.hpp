#pragma once

#include <coxswain/runtime/error/taken_error.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace cox::detail {

/// A profile in the work of a stream: the state that its begin and its end share.
struct HostProfile {
  std::uint64_t begin_piece = 0;  ///< device thread: the piece of the stream that begins the profile
  std::chrono::steady_clock::time_point begin;
  std::exception_ptr failure;             ///< first failure of the work between begin and end
  std::shared_ptr<ErrorReceipt> receipt;  ///< of the failures that the profile has taken from the stream
};

/// The profiles of a stream that have begun and not ended. Used only by the work of the stream.
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
