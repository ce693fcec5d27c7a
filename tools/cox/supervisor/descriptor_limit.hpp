#pragma once

#include <sys/resource.h>

namespace cox::tools {

/// While this object exists, this process may open as many files as the system allows it: kept memory takes two
/// descriptors for each GiB.
class DescriptorLimit {
 public:
  DescriptorLimit() noexcept {
    if (getrlimit(RLIMIT_NOFILE, &before_) != 0) return;
    rlimit most = before_;
    most.rlim_cur = most.rlim_max;
    static_cast<void>(setrlimit(RLIMIT_NOFILE, &most));
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() { static_cast<void>(setrlimit(RLIMIT_NOFILE, &before_)); }

  /// The limit as it was.
  [[nodiscard]] const rlimit& before() const noexcept { return before_; }

 private:
  rlimit before_{};
};

}  // namespace cox::tools
