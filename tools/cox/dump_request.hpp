#pragma once

#include <csignal>

namespace cox::tools {

/// While this object exists, SIGUSR1 is recorded as a request for a dump instead of ending the process. At most one
/// object at a time.
class DumpRequest {
 public:
  DumpRequest() noexcept;
  ~DumpRequest();
  DumpRequest(const DumpRequest&) = delete;
  DumpRequest& operator=(const DumpRequest&) = delete;

  /// Whether SIGUSR1 arrived since the last call. Any thread.
  [[nodiscard]] bool take() noexcept;

 private:
  struct sigaction before_{};
};

}  // namespace cox::tools
