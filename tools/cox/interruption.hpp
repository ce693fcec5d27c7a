#pragma once

#include <atomic>
#include <csignal>

namespace cox::tools {

/// While it lives, SIGINT and SIGTERM set a flag instead of ending the process; the second of a kind ends it. One at a
/// time.
class Interruption {
 public:
  Interruption() noexcept;
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  [[nodiscard]] const std::atomic<bool>& flag() const noexcept;

 private:
  struct sigaction interrupt_{};  // as it was before
  struct sigaction terminate_{};
};

}  // namespace cox::tools
