#include <coxswain/runtime/socket/peer_process.hpp>

#include <sys/socket.h>
#include <unistd.h>

namespace cox::detail {

std::optional<PeerProcess> peer_process(int socket) noexcept {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return PeerProcess{.id = peer.pid, .has_own_user = peer.uid == geteuid()};
}

}  // namespace cox::detail
