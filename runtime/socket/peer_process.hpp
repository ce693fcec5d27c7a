#pragma once

#include <sys/types.h>

#include <optional>

namespace cox::detail {

/// The process at the other end of a connected Unix domain socket, as it was when it connected or called listen().
struct PeerProcess {
  pid_t id;
  bool has_own_user;  ///< Its effective user is that of this process.
};

/// Nothing if the kernel does not say.
[[nodiscard]] std::optional<PeerProcess> peer_process(int socket) noexcept;

}  // namespace cox::detail
