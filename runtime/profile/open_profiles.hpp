#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// The open profiles of one stream: those that have begun and not ended. Profiles may nest and overlap in any order.
/// Device thread only; does not block. Bounded: a stream has at most `capacity` open profiles (L7).
///
/// Position: where in the stream a profile began, in whatever form the server needs to find the ticks; movable.
template <class Position>
class OpenProfiles {
 public:
  static constexpr std::size_t default_capacity = 4096;

  explicit OpenProfiles(const Location& location, std::size_t capacity = default_capacity)
      : location_(location), capacity_(capacity) {}

  /// Begins a profile. Throws ProfileError Unknown if `capacity` profiles are already open.
  ProfilingToken open(Position position, std::source_location site = std::source_location::current()) {
    if (open_.size() >= capacity_)
      throw ProfileError(ProfileError::Kind::Unknown,
                         std::to_string(capacity_) + " profiles are open on " + location_.to_string() +
                             ", the most allowed: end some first",
                         site);
    const ProfilingToken token = ProfilingToken::next();
    open_.push_back({token, std::move(position), nullptr});
    return token;
  }

  /// A profile that has ended.
  struct Ended {
    Position position;           ///< where the profile began
    std::exception_ptr failure;  ///< the first error passed to mark_all() while it was open; null: none
  };
  /// Ends a profile, even if it has failed. Throws ProfileError NotRegistered if it is not open on this stream.
  Ended end(ProfilingToken token, std::source_location site = std::source_location::current()) {
    // The innermost profile is the last one.
    const auto found = std::ranges::find(open_.rbegin(), open_.rend(), token, &Entry::token);
    if (found == open_.rend())
      throw ProfileError(ProfileError::Kind::NotRegistered,
                         "profile " + std::to_string(token.value) + " is not open on " + location_.to_string() +
                             ": it was not begun on this stream, or has already ended",
                         site);
    Entry entry = std::move(*found);
    open_.erase(std::prev(found.base()));
    return {std::move(entry.position), std::move(entry.failure)};
  }

  /// Invalidates every open profile, because the stream failed with `error`. The first failure of each profile is kept.
  void mark_all(const std::exception_ptr& error) noexcept {
    for (Entry& entry : open_)
      if (entry.failure == nullptr) entry.failure = error;
  }

  [[nodiscard]] std::size_t size() const noexcept { return open_.size(); }
  [[nodiscard]] bool empty() const noexcept { return open_.empty(); }

 private:
  struct Entry {
    ProfilingToken token;
    Position position;
    std::exception_ptr failure;
  };

  Location location_;
  std::size_t capacity_;
  std::vector<Entry> open_;  // in the order in which they began
};

}  // namespace cox
