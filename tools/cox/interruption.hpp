#pragma once

#include <atomic>
#include <csignal>

namespace cox::tools {

/// While this object exists, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process. A second SIGINT or
/// SIGTERM ends the process. Further SIGHUPs do not, because a hangup may send several. A SIGHUP that the process
/// ignores (nohup) stays ignored. At most one object at a time.
class Interruption {
 public:
  Interruption() noexcept;
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  [[nodiscard]] const std::atomic<bool>& flag() const noexcept;

 private:
  struct sigaction interrupt_{};  // actions before this object was created
  struct sigaction terminate_{};
  struct sigaction hangup_{};
};

}  // namespace cox::tools
