#include <coxswain/runtime/socket/local_socket.hpp>

#include <coxswain/runtime/socket/peer_process.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace cox {
namespace {

[[noreturn]] void fail(int error, const std::string& path) {
  throw std::system_error(error, std::generic_category(), path);
}

FileDescriptor make_socket(int flags, const std::string& path) {
  FileDescriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!made.is_open()) fail(errno, path);
  return made;
}

struct Address {
  sockaddr_un native{};
  FileDescriptor folder;  // that `native` refers to, if the path itself is too long for it

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&native); }
};

Address address_of(const std::string& path) {
  Address address;
  address.native.sun_family = AF_UNIX;
  std::string name = path;
  if (name.size() >= sizeof(address.native.sun_path)) {
    const std::filesystem::path whole(path);
    address.folder.reset(open(whole.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.folder.is_open()) fail(errno, path);
    name = "/proc/self/fd/" + std::to_string(address.folder.get()) + "/" + whole.filename().string();
  }
  if (name.size() >= sizeof(address.native.sun_path)) fail(ENAMETOOLONG, path);
  name.copy(address.native.sun_path, name.size());
  return address;
}

}  // namespace

FileDescriptor listen_local(const std::string& path) {
  constexpr int most_waiting = 64;
  FileDescriptor made = make_socket(SOCK_NONBLOCK, path);
  const Address address = address_of(path);
  if (bind(made.get(), address.get(), sizeof(address.native)) != 0 || listen(made.get(), most_waiting) != 0)
    fail(errno, path);
  return made;
}

FileDescriptor connect_local(const std::string& path, std::optional<time_t> longest) {
  FileDescriptor made = make_socket(0, path);
  if (longest) limit_waits(made.get(), *longest);
  const Address address = address_of(path);
  if (connect(made.get(), address.get(), sizeof(address.native)) != 0) fail(errno, path);
  return made;
}

std::optional<LocalConnection> accept_local(int listener) {
  for (;;) {
    FileDescriptor accepted(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted.is_open()) return std::nullopt;
    const auto peer = detail::peer_process(accepted.get());
    if (peer && peer->has_own_user) return LocalConnection{std::move(accepted), peer->id};
  }
}

void limit_waits(int socket, time_t seconds) noexcept {
  const timeval longest{.tv_sec = seconds, .tv_usec = 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    static_cast<void>(setsockopt(socket, SOL_SOCKET, option, &longest, sizeof(longest)));
}

bool is_readable(int descriptor, int milliseconds) noexcept {
  pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&watched, 1, milliseconds) > 0;
}

}  // namespace cox
