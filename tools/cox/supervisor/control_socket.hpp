#pragma once

#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <sys/types.h>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// The socket through which a running supervisor receives requests of its user: in a folder that only the user can
/// access. Any thread.
class ControlSocket {
 public:
  /// Creates the socket of this process. Throws std::system_error.
  ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;
  ~ControlSocket();

  /// Readable when there is a request.
  [[nodiscard]] int descriptor() const noexcept { return listener_.get(); }
  /// Answers one request, if there is one: answer(request) returns the text. A request of another user, or one that
  /// does not come within 100 ms, is dropped.
  void answer(const std::function<std::string(std::string_view request)>& answer) const;

  /// The processes of this user that run a supervisor, in increasing order.
  [[nodiscard]] static std::vector<pid_t> supervisors();
  /// Sends the request to the supervisor in that process, and returns its answer. Blocks for it, at most ten seconds.
  /// Throws std::system_error.
  [[nodiscard]] static std::string query(pid_t supervisor, std::string_view request);

 private:
  std::filesystem::path path_;
  FileDescriptor listener_;
};

}  // namespace cox::tools
