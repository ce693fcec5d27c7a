#pragma once

#include <sys/resource.h>
#include <cstddef>

namespace cox::tools {

/// While this object exists, this process may open as many files as the system allows it: kept memory takes two
/// descriptors for each GiB.
class DescriptorLimit {
 public:
  DescriptorLimit() noexcept {
    if (getrlimit(RLIMIT_NOFILE, &before_) != 0) return;
    rlimit most = before_;
    most.rlim_cur = most.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == RLIM_INFINITY) most = before_;
    now_ = most.rlim_cur;
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() { static_cast<void>(setrlimit(RLIMIT_NOFILE, &before_)); }

  /// Descriptors that may be held of kept memory: 128 of the limit are left for all else.
  [[nodiscard]] std::size_t for_kept_memory() const noexcept {
    constexpr rlim_t others = 128;
    return now_ > others ? static_cast<std::size_t>(now_ - others) : 0;
  }
  /// The limit as it was.
  [[nodiscard]] const rlimit& before() const noexcept { return before_; }

 private:
  rlimit before_{};
  rlim_t now_ = 1024;
};

}  // namespace cox::tools
