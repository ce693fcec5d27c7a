#include <coxswain/tools/cox/supervisor/control_socket.hpp>

#include <coxswain/runtime/socket/local_socket.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
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

constexpr time_t longest_wait = 10;  // seconds, for a supervisor that does not answer

}  // namespace

ControlSocket::ControlSocket() : path_(path_of(getpid())) {
  static_cast<void>(unlink(path_.c_str()));  // of an earlier process with this id
  listener_ = listen_local(path_);
}

ControlSocket::~ControlSocket() { static_cast<void>(unlink(path_.c_str())); }

void ControlSocket::answer(const std::function<std::string(std::string_view)>& answer) const {
  constexpr int longest_ms = 100;  // between the client's connect() and its send()
  const auto connection = accept_local(listener_.get());
  if (!connection || !is_readable(connection->socket.get(), longest_ms)) return;
  std::array<char, 64> request{};
  const ssize_t size = recv(connection->socket.get(), request.data(), request.size(), MSG_DONTWAIT);
  if (size <= 0) return;
  const std::string text = answer({request.data(), static_cast<std::size_t>(size)}).substr(0, longest_answer);
  static_cast<void>(send(connection->socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

std::vector<pid_t> ControlSocket::supervisors() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const std::string name = entry.path().stem();
    pid_t process = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc() || end != name.data() + name.size() || process <= 0) continue;
    try {
      static_cast<void>(connect_local(entry.path(), longest_wait));
      found.push_back(process);
    } catch (const std::system_error&) {  // a socket that a killed process has left
    }
  }
  std::ranges::sort(found);
  return found;
}

std::string ControlSocket::query(pid_t supervisor, std::string_view request) try {
  const FileDescriptor connection = connect_local(path_of(supervisor), longest_wait);
  if (send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) fail("send");
  std::string text(longest_answer, '\0');
  ssize_t size = 0;
  do size = recv(connection.get(), text.data(), text.size(), 0);
  while (size < 0 && errno == EINTR);  // which a limit of the wait does not restart
  if (size < 0) fail("receive");
  text.resize(static_cast<std::size_t>(size));
  return text;
} catch (const std::system_error& error) {
  throw std::system_error(error.code(), "no supervisor in process " + std::to_string(supervisor) + " answers");
}

}  // namespace cox::tools
