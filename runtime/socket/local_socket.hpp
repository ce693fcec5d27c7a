#pragma once

#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <sys/types.h>
#include <optional>
#include <string>

namespace cox {

// Local sockets that keep the boundaries of packets (SOCK_SEQPACKET), close-on-exec. Functions that throw, throw
// std::system_error.

/// A socket that accepts connections at that path, which must not exist and may be longer than a socket address.
/// accept_local() on it does not block.
[[nodiscard]] FileDescriptor listen_local(const std::string& path);
/// Connects to the socket at that path. With `longest`, that and later sends and receives fail after so many seconds:
/// see limit_waits.
[[nodiscard]] FileDescriptor connect_local(const std::string& path, std::optional<time_t> longest = std::nullopt);

/// A connection that was accepted.
struct LocalConnection {
  FileDescriptor socket;
  pid_t process = 0;  ///< that has connected
};
/// The next connection of a process of this user; connections of other users are closed. std::nullopt if there is none.
[[nodiscard]] std::optional<LocalConnection> accept_local(int listener);

/// Blocking sends on the socket fail after this time with EAGAIN, receives as well.
void limit_waits(int socket, time_t seconds) noexcept;
/// Whether there is a packet, or the other end is closed. Waits for at most `milliseconds`.
[[nodiscard]] bool is_readable(int descriptor, int milliseconds = 0) noexcept;

}  // namespace cox
