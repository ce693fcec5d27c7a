#include <coxswain/tools/cox/output_file.hpp>

#include <coxswain/tools/cox/argument_error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace cox::tools {
namespace {

namespace fs = std::filesystem;

std::error_code last_error() { return {errno, std::generic_category()}; }

class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] int number() const noexcept { return number_; }
  /// Some file systems report only at close() that data was not stored.
  [[nodiscard]] std::error_code close() noexcept {
    return ::close(std::exchange(number_, -1)) == 0 ? std::error_code() : last_error();
  }

 private:
  int number_;
};

std::error_code write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t length = ::write(descriptor, text.data(), text.size());
    if (length < 0 && errno != EINTR) return last_error();
    if (length > 0) text.remove_prefix(static_cast<std::size_t>(length));
  }
  return {};
}

std::error_code write_in_place(const std::string& path, std::string_view text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.number() < 0) return last_error();
  if (const auto error = write_all(file.number(), text)) return error;
  return file.close();
}

// Devices, pipes, and names such as /dev/stdout are not replaceable: another process may have that same file open.
bool is_replaceable(const std::string& path) {
  if (path.starts_with("/dev/") || path.starts_with("/proc/")) return false;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return !fs::exists(status) || fs::is_regular_file(status);
}

// The path of the file that `path` refers to, with symbolic links resolved; `path` if that fails.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? real.get() : path;
}

mode_t mode_for(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) == 0) return facts.st_mode & 07777U;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666U & ~mask;
}

// A temporary file in the folder of another file. The destructor removes it unless it was renamed.
class TemporaryNeighbour {
 public:
  explicit TemporaryNeighbour(const std::string& path) : path_(path + ".XXXXXX") {
    const Descriptor file(::mkostemp(path_.data(), O_CLOEXEC));
    if (file.number() < 0) {
      error_ = last_error();
      path_.clear();
      return;
    }
    static_cast<void>(::fchmod(file.number(), mode_for(path)));
  }
  TemporaryNeighbour(const TemporaryNeighbour&) = delete;
  TemporaryNeighbour& operator=(const TemporaryNeighbour&) = delete;
  ~TemporaryNeighbour() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  /// Why the file could not be created; no error if it was.
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  [[nodiscard]] std::error_code rename(const std::string& to) {
    {
      // Sync the content before the rename: otherwise a crash of the machine may leave the new name with no content.
      const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
      if (file.number() < 0 || ::fsync(file.number()) != 0) return last_error();
    }
    if (::rename(path_.c_str(), to.c_str()) != 0) return last_error();
    path_.clear();
    return {};
  }

 private:
  std::string path_;
  std::error_code error_;
};

std::error_code write_error(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) {
    if (fs::is_directory(path)) return {EISDIR, std::generic_category()};
    return ::access(path.c_str(), W_OK) == 0 ? std::error_code() : last_error();
  }
  if (path.empty() || path.back() == '/') return {EISDIR, std::generic_category()};
  return TemporaryNeighbour(resolved(path)).error();
}

bool are_the_same(const std::string& a, const std::string& b) {
  if (a == standard_output || b == standard_output) return a == b;
  if (!is_replaceable(a) || !is_replaceable(b)) return false;
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  return fs::weakly_canonical(fs::absolute(a), error) == fs::weakly_canonical(fs::absolute(b), error);
}

}  // namespace

void require_writable(std::string_view option, const std::string& path) {
  if (const auto error = write_error(path))
    throw ArgumentError(std::string(option) + ": cannot write '" + path + "': " + error.message());
}

void require_different_files(const std::vector<std::pair<std::string_view, std::string>>& options) {
  for (std::size_t i = 0; i < options.size(); ++i) {
    for (std::size_t j = i + 1; j < options.size(); ++j) {
      const auto& [option, path] = options[i];
      const auto& [other, other_path] = options[j];
      if (path.empty() || other_path.empty() || !are_the_same(path, other_path)) continue;
      throw ArgumentError(std::string(option) + " and " + std::string(other) + ": both name the file '" + path + "'");
    }
  }
}

std::error_code replace_file(const std::string& path, const std::function<std::error_code(const std::string&)>& write) {
  const std::string file = resolved(path);
  if (!is_replaceable(path)) return write(path);
  TemporaryNeighbour temporary(file);
  if (temporary.error() == std::errc::permission_denied || temporary.error() == std::errc::read_only_file_system)
    return write(file);
  if (temporary.error()) return temporary.error();
  if (const auto error = write(temporary.path())) return error;
  return temporary.rename(file);
}

std::error_code write_file(const std::string& path, std::string_view text) {
  return replace_file(path, [text](const std::string& name) { return write_in_place(name, text); });
}

bool is_written(const std::error_code& error, std::string_view command, std::string_view option,
                const std::string& path, std::ostream& err) {
  if (!error) return true;
  err << command << ": " << option << ": '" << path << "' could not be written: " << error.message() << "\n"
      << std::flush;
  return false;
}

}  // namespace cox::tools
