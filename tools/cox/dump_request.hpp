#pragma once

#include <csignal>

namespace cox::tools {

/// While it lives, SIGUSR1 is noted as a request for a dump instead of ending the process. One at a time.
class DumpRequest {
 public:
  DumpRequest() noexcept;
  ~DumpRequest();
  DumpRequest(const DumpRequest&) = delete;
  DumpRequest& operator=(const DumpRequest&) = delete;

  /// Whether there was a request since the last call. Any thread.
  [[nodiscard]] bool take() noexcept;

 private:
  struct sigaction before_{};
};

}  // namespace cox::tools
