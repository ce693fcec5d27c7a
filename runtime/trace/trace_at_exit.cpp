#include <coxswain/runtime/trace/trace_at_exit.hpp>

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/telemetry/world_member.hpp>
#include <coxswain/runtime/trace/chrome_trace.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>

namespace cox::trace {
namespace {

// Static objects are destroyed in the reverse order of their construction. This one is destroyed after the guard that
// shuts the devices down, if it was constructed before the first device was opened.
class FileAtExit {
 public:
  FileAtExit() = default;
  FileAtExit(const FileAtExit&) = delete;
  FileAtExit& operator=(const FileAtExit&) = delete;
  ~FileAtExit() {
    if (path_.empty() || process_ != getpid()) return;
    try {
      const std::filesystem::path own = file_of_process(path_);
      std::error_code ignored;
      // Made by start_until_exit(), which did not know the number of the process.
      if (own != path_ && std::filesystem::file_size(path_, ignored) == 0) std::filesystem::remove(path_, ignored);
      write_chrome_trace(own, stop());
    } catch (const std::exception& error) {
      log::write(LogSubsystem::Runtime, LogLevel::Error, [&] { return std::string(error.what()); });
      if (!log::enabled(LogSubsystem::Runtime, LogLevel::Error))
        std::fputs(("coxswain: " + std::string(error.what()) + "\n").c_str(), stderr);
    }
  }

  void set(const std::filesystem::path& path) {
    const std::scoped_lock lock(mutex_);
    path_ = path;
    process_ = getpid();
  }

 private:
  std::mutex mutex_;
  std::filesystem::path path_;
  pid_t process_ = 0;
};

}  // namespace

void start_until_exit(const Options& options, const std::filesystem::path& path) {
  static FileAtExit file;
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) {
    throw Error("cannot write '" + path.string() + "': " + std::generic_category().message(errno));
  }
  start(options);
  file.set(path);
}

}  // namespace cox::trace
