// expect-exit: 0
// A trace that the environment asks for is in its file when the process has ended, with the work that main left queued;
// a forked child does not write it. The process forks: the parent looks at what the child, which did all of it, left.

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/runtime/client/apply_settings.hpp>
#include <coxswain/runtime/trace/trace.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <string>

namespace {

struct Service {
  explicit Service(cox::DeviceId) {}
};

void work() {
  cox::apply_settings();
  auto handle = cox::DeviceHandle<Service>::get({});
  static std::promise<void> gate;
  handle.submit([](Service&) { gate.get_future().wait(); });
  for (int i = 0; i < 100; ++i) handle.submit([](Service&) { cox::name_operation("left behind"); });
  if (const pid_t child = fork(); child == 0) {
    std::exit(0);
  } else {
    waitpid(child, nullptr, 0);
  }
  if (std::filesystem::file_size(std::getenv("COX_TRACE_FILE")) != 0) _exit(3);  // the child has written it
  gate.set_value();
  std::exit(0);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

int main() {
  alarm(60);
  const std::string path = std::filesystem::temp_directory_path() / ("cox-trace-" + std::to_string(getpid()));
  setenv("COX_TRACE_FILE", path.c_str(), 1);
  const pid_t worker = fork();
  if (worker == 0) work();
  int status = 0;
  waitpid(worker, &status, 0);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 1;
  return count(text.str(), "\"name\":\"left behind\",\"cat\":\"task\"") == 100 && text.str().ends_with("]}\n") ? 0 : 2;
}
