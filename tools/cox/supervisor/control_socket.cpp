#include <coxswain/tools/cox/supervisor/control_socket.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace cox::tools {
namespace {

constexpr std::size_t longest_answer = 32 * 1024;

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

// The folder of the sockets of this user. It must belong to the user alone: its parent may be /tmp.
std::filesystem::path folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string own = "/tmp/coxswain-" + std::to_string(getuid());
  const bool has_runtime = runtime != nullptr && *runtime != '\0';
  const std::filesystem::path path =
      has_runtime ? std::filesystem::path(runtime) / "coxswain" : std::filesystem::path(own);
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) fail(path);
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) fail(path);
  if (!S_ISDIR(status.st_mode) || status.st_uid != getuid() || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw std::system_error(EPERM, std::generic_category(), path.string() + " is not a private folder of this user");
  return path;
}

std::filesystem::path path_of(pid_t supervisor) { return folder() / (std::to_string(supervisor) + ".socket"); }

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof(address.sun_path))
    throw std::system_error(ENAMETOOLONG, std::generic_category(), path);
  std::strcpy(address.sun_path, path.c_str());
  return address;
}

void limit_waits(int socket, time_t seconds) {
  const timeval longest{.tv_sec = seconds, .tv_usec = 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    static_cast<void>(setsockopt(socket, SOL_SOCKET, option, &longest, sizeof(longest)));
}

FileDescriptor make_socket(int flags) {
  FileDescriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!made.is_open()) fail("socket");
  limit_waits(made.get(), 10);
  return made;
}

bool is_of_this_user(int connection) {
  ucred who{};
  socklen_t size = sizeof(who);
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == getuid();
}

}  // namespace

ControlSocket::ControlSocket() : path_(path_of(getpid())), listener_(make_socket(SOCK_NONBLOCK)) {
  static_cast<void>(unlink(path_.c_str()));  // of an earlier process with this id
  const sockaddr_un address = address_of(path_);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail(path_);
  if (listen(listener_.get(), 4) != 0) fail("listen");
}

ControlSocket::~ControlSocket() { static_cast<void>(unlink(path_.c_str())); }

void ControlSocket::answer(const std::function<std::string(std::string_view)>& answer) const {
  const FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.is_open() || !is_of_this_user(connection.get())) return;
  constexpr int longest_ms = 100;  // between the client's connect() and its send()
  pollfd readable{.fd = connection.get(), .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, longest_ms) <= 0) return;
  std::array<char, 64> request{};
  const ssize_t size = recv(connection.get(), request.data(), request.size(), MSG_DONTWAIT);
  if (size <= 0) return;
  const std::string text = answer({request.data(), static_cast<std::size_t>(size)}).substr(0, longest_answer);
  static_cast<void>(send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

std::vector<pid_t> ControlSocket::supervisors() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const std::string name = entry.path().stem();
    pid_t process = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc() || end != name.data() + name.size() || process <= 0) continue;
    const FileDescriptor probe = make_socket(0);
    const sockaddr_un address = address_of(entry.path());
    if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      found.push_back(process);
  }
  std::ranges::sort(found);
  return found;
}

std::string ControlSocket::ask(pid_t supervisor, std::string_view request) {
  const FileDescriptor connection = make_socket(0);
  const sockaddr_un address = address_of(path_of(supervisor));
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fail("no supervisor in process " + std::to_string(supervisor));
  if (send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) fail("send");
  std::string text(longest_answer, '\0');
  const ssize_t size = recv(connection.get(), text.data(), text.size(), 0);
  if (size < 0) fail("no answer from process " + std::to_string(supervisor));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

}  // namespace cox::tools
