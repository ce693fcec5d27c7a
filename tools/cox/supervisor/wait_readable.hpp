#pragma once

#include <poll.h>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <vector>

namespace cox::tools {

/// Blocks until one of the descriptors is readable or the time has elapsed; may return early. std::nullopt: no time
/// limit.
inline void wait_readable(const std::vector<int>& descriptors, std::optional<std::chrono::nanoseconds> longest) {
  constexpr std::chrono::nanoseconds::rep second = 1'000'000'000;
  std::vector<pollfd> watched;
  for (const int descriptor : descriptors) watched.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  const std::chrono::nanoseconds most =
      std::max(longest.value_or(std::chrono::nanoseconds(0)), std::chrono::nanoseconds(0));
  const timespec time{.tv_sec = most.count() / second, .tv_nsec = most.count() % second};
  static_cast<void>(ppoll(watched.data(), watched.size(), longest ? &time : nullptr, nullptr));
}

}  // namespace cox::tools
