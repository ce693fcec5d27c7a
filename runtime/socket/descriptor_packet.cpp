#include <coxswain/runtime/socket/descriptor_packet.hpp>

#include <sys/socket.h>
#include <sys/uio.h>
#include <array>
#include <cerrno>
#include <cstring>

namespace cox {
namespace {

// Space for the control data of a packet with as many descriptors as the kernel passes.
struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(sizeof(int) * DescriptorPacket::max_descriptors)> bytes{};
};

void take_descriptors(msghdr& header, std::vector<FileDescriptor>& into) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      into.emplace_back(descriptor);
    }
  }
}

}  // namespace

int send_packet(int socket, std::span<const std::byte> data, std::span<const FileDescriptor> descriptors,
                int flags) noexcept {
  // sendmsg() does not write to it.
  iovec part{.iov_base = const_cast<std::byte*>(data.data()), .iov_len = data.size()};  // NOLINT(*-const-cast)
  Control control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      const int descriptor = descriptors[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &descriptor, sizeof(int));
    }
  }
  while (sendmsg(socket, &header, flags | MSG_NOSIGNAL) < 0)
    if (errno != EINTR) return errno;
  return 0;
}

int receive_packet(int socket, std::size_t most, DescriptorPacket& into, int flags) {
  into = {};
  into.data.resize(most);
  into.descriptors.reserve(DescriptorPacket::max_descriptors);  // none is lost for want of memory
  iovec part{.iov_base = into.data.data(), .iov_len = into.data.size()};
  Control control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  ssize_t size = 0;
  while ((size = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EINTR) continue;
    into.data.clear();
    return errno;
  }
  take_descriptors(header, into.descriptors);
  into.data.resize(static_cast<std::size_t>(size));
  into.is_cut = (header.msg_flags & MSG_TRUNC) != 0;
  into.lacks_descriptors = (header.msg_flags & MSG_CTRUNC) != 0;
  if (into.lacks_descriptors) into.descriptors.clear();
  return 0;
}

}  // namespace cox
