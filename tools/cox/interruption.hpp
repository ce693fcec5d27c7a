#pragma once

#include <atomic>
#include <csignal>

namespace cox::tools {

/// While it lives, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process. The second SIGINT or SIGTERM
/// ends it; a hangup may send several SIGHUPs, which do not. A SIGHUP that the process ignores (nohup) stays ignored.
/// One at a time.
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
  struct sigaction hangup_{};
};

}  // namespace cox::tools
