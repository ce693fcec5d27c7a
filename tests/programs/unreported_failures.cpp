// expect-exit: 0
// L12: a failure that no call has thrown by the end of the process is reported once: in the log, or on stderr if there
// is no log. One that a call has thrown is not reported again. Each case is a child process whose output is read.

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace {

const std::string folder = std::filesystem::temp_directory_path() / ("coxswain_unreported_" + std::to_string(getpid()));
const std::string errors = folder + "/stderr";
const std::string log_file = folder + "/log";

std::size_t count_in(const std::string& path, const std::string& text) {
  std::ifstream in(path);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  std::size_t count = 0;
  for (std::size_t at = content.find(text); at != std::string::npos; at = content.find(text, at + 1)) ++count;
  return count;
}

void launch_failing_kernel() {
  const auto client = cox::HostClient::load({});
  client.launch(cox::HostKernel("bad", {}, 0, [](const cox::KernelContext&) { throw std::runtime_error("boom"); }),
                cox::CubeCount::of_1d(1), cox::KernelArguments{});
}

void drop_everything() { launch_failing_kernel(); }

void shut_down() {
  launch_failing_kernel();
  cox::shutdown({});
}

void take_it() {
  launch_failing_kernel();
  try {
    cox::HostClient::load({}).sync().get();
  } catch (const cox::ServerError&) {
  }
}

void drop_with_log() {
  cox::set_settings({{"log.level", "error"}, {"log.stderr", false}, {"log.file", log_file}});
  launch_failing_kernel();
}

/// How often the failure is reported by a process that does that: on stderr, and in the log file.
bool is_reported(const char* name, void (*run)(), std::size_t on_stderr, std::size_t in_log) {
  std::filesystem::create_directories(folder);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const int file = open(errors.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(file, STDERR_FILENO);
    run();
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const std::size_t seen = count_in(errors, "boom");
  const std::size_t logged = count_in(log_file, "boom");
  std::filesystem::remove_all(folder);
  if (status == 0 && seen == on_stderr && logged == in_log) return true;
  std::fprintf(stderr, "%s: status %d, %zu times on stderr, %zu times in the log\n", name, status, seen, logged);
  return false;
}

}  // namespace

int main() {
  bool ok = is_reported("dropped", drop_everything, 1, 0);
  ok = is_reported("shut down", shut_down, 1, 0) && ok;
  ok = is_reported("taken", take_it, 0, 0) && ok;
  ok = is_reported("dropped, with a log", drop_with_log, 0, 1) && ok;
  return ok ? 0 : 1;
}
