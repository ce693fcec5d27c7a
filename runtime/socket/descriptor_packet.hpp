#pragma once

#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace cox {

/// A packet of a Unix domain socket of type SOCK_SEQPACKET, with the file descriptors that it passes.
struct DescriptorPacket {
  /// How many descriptors the kernel passes with a packet.
  static constexpr std::size_t max_descriptors = 253;

  std::vector<std::byte> data;  ///< empty: the other end has closed the connection
  std::vector<FileDescriptor> descriptors;
  bool is_cut = false;  ///< it was larger than what was expected
  bool lacks_descriptors =
      false;  ///< this process had none left for those that were passed; those that it got are closed
};

/// Sends a packet; the descriptors remain open here. `flags`: of sendmsg(); no signal is sent in any case. Returns 0,
/// or errno. Precondition: at most max_descriptors, and at least one byte. Any thread; blocks unless MSG_DONTWAIT is
/// given.
[[nodiscard]] int send_packet(int socket, std::span<const std::byte> data, std::span<const FileDescriptor> descriptors,
                              int flags) noexcept;

/// Receives the next packet, of at most `most` bytes. `flags`: of recvmsg(); the descriptors are closed on exec in any
/// case. Returns 0, or errno. Throws std::bad_alloc. Any thread; blocks unless MSG_DONTWAIT is given.
[[nodiscard]] int receive_packet(int socket, std::size_t most, DescriptorPacket& into, int flags);

}  // namespace cox
