#include <coxswain/tools/cox/query_supervisor.hpp>

#include <coxswain/tools/cox/settings.hpp>
#include <coxswain/tools/cox/supervisor/control_socket.hpp>

#include <sys/types.h>
#include <limits>
#include <system_error>
#include <vector>

namespace cox::tools {

ExitCode query_supervisor(std::string_view command, std::string_view request, const std::string& process,
                          std::ostream& out, std::ostream& err) {
  auto id = static_cast<pid_t>(parse_count("the process ID", process, 0, std::numeric_limits<pid_t>::max()));
  try {
    if (id == 0) {
      const std::vector<pid_t> found = ControlSocket::supervisors();
      if (found.size() != 1) {
        err << command << ": " << (found.empty() ? "no `cox run` runs" : "several `cox run` run; give the ID of one:");
        for (const pid_t each : found) err << " " << each;
        err << "\n";
        return ExitCode::Violation;
      }
      id = found.front();
    }
    out << ControlSocket::query(id, request);
    return ExitCode::Ok;
  } catch (const std::system_error& error) {
    err << command << ": " << error.what() << "\n";
    return ExitCode::Violation;
  }
}

}  // namespace cox::tools
