#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/socket/file_descriptor.hpp>
#include <coxswain/runtime/socket/peer_process.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>

using cox::FileDescriptor;
using cox::detail::peer_process;

namespace {

std::array<FileDescriptor, 2> connected_sockets() {
  std::array<int, 2> both{};
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both.data()) == 0);
  return {FileDescriptor(both[0]), FileDescriptor(both[1])};
}

}  // namespace

TEST_CASE("The process at the other end of a socket is found, and whether it has the own user") {
  const auto sockets = connected_sockets();
  const auto peer = peer_process(sockets[0].get());
  REQUIRE(peer);
  CHECK(peer->id == getpid());
  CHECK(peer->has_own_user);
}

TEST_CASE("The process at the other end of a socket can have another user") {
  if (geteuid() != 0) return;  // only root can be another user for a moment
  constexpr uid_t other = 65534;
  REQUIRE(seteuid(other) == 0);
  const auto sockets = connected_sockets();
  REQUIRE(seteuid(0) == 0);
  const auto peer = peer_process(sockets[0].get());
  REQUIRE(peer);
  CHECK_FALSE(peer->has_own_user);
}

TEST_CASE("What is not a socket has no process at its other end") { CHECK_FALSE(peer_process(-1)); }
