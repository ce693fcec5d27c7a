#include <coxswain/collectives/store/folder_store.hpp>

#include <coxswain/runtime/config/setting_value.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

namespace fs = std::filesystem;
using StoreKind = StoreError::Kind;

constexpr std::chrono::milliseconds longest_folder_pause{50};

/// Text as a part of a file's name: letters, digits, '.', '_' and '-' stand for themselves, '/' is '+', and all else is
/// % and two hexadecimal digits.
std::string as_file_name(std::string_view text) {
  static constexpr std::string_view digits = "0123456789ABCDEF";
  std::string name;
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    const bool is_plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                          (letter >= '0' && letter <= '9') || letter == '_' || letter == '-' ||
                          (letter == '.' && !name.empty());
    if (is_plain) {
      name += letter;
    } else if (letter == '/') {
      name += '+';
    } else {
      name += {'%', digits[code >> 4U], digits[code & 15U]};
    }
  }
  return name;
}

/// The path of `what`=`name`, which may be too long for one file: folders, whose names end with '~', hold its
/// beginning.
fs::path as_path(const fs::path& folder, const std::string& what, std::string_view name) {
  constexpr std::size_t longest = 200;  // bytes of a part; file systems allow 255
  fs::path path = folder;
  while (name.size() > longest) {
    path /= std::string(name.substr(0, longest)) + '~';
    name.remove_prefix(longest);
  }
  return path / (what + "=" + std::string(name));
}

StoreError folder_error(const fs::path& path, int error) {
  return {StoreKind::Unreachable, "the store's file " + path.string() + ": " + std::generic_category().message(error)};
}

/// Reports a file that another process makes in a folder of this host. On other hosts, and where the system has no more
/// watches, it reports nothing, and wait() ends after the pause.
class FolderWatch {
 public:
  explicit FolderWatch(const fs::path& folder) : descriptor_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (descriptor_.is_open() && inotify_add_watch(descriptor_.get(), folder.c_str(), IN_MOVED_TO | IN_CREATE) < 0)
      descriptor_.reset();
  }
  void wait(std::chrono::nanoseconds pause) {
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(pause);
    pollfd watched{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};  // -1 is ignored
    static_cast<void>(poll(&watched, 1, static_cast<int>(milliseconds.count())));
    alignas(inotify_event) std::array<char, 4096> events{};
    while (descriptor_.is_open() && ::read(descriptor_.get(), events.data(), events.size()) > 0) {
    }
  }

 private:
  FileDescriptor descriptor_;
};

}  // namespace

FolderStore::FolderStore(FolderStoreOptions options) : Store({}), options_(std::move(options)) {
  folder_ = as_path(options_.folder, "run", as_file_name(options_.run)) / std::to_string(options_.restart);
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw folder_error(folder_, error.value());
  if (::chmod(folder_.c_str(), S_IRWXU) != 0) throw folder_error(folder_, errno);  // a value may be a secret
  if (options_.process != 0) return;
  for (std::uint32_t restart = options_.restart; restart-- > 0;)
    if (fs::remove_all(folder_.parent_path() / std::to_string(restart), error) == 0) break;
}

fs::path FolderStore::file_of(const std::string& key) const { return as_path(folder_, "key", as_file_name(key)); }

StoreError FolderStore::timeout(const std::string& key, const char* what) const {
  return {StoreKind::Timeout,
          "key " + in_quotes(key) + ": " + what + " in " + folder_.string() + " before the deadline"};
}

FileDescriptor FolderStore::lock(const std::string& key, Deadline deadline) const {
  const fs::path path = folder_ / "lock";
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file.is_open()) throw folder_error(path, errno);
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, longest_folder_pause)) {
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    if (errno != EWOULDBLOCK && errno != EINTR) throw folder_error(path, errno);
    const auto time = time_until(deadline, pause);
    if (time <= time.zero()) throw timeout(key, "another process has held the lock");
    std::this_thread::sleep_for(time);
  }
}

void FolderStore::write(const std::string& key, std::span<const std::byte> value) {
  static std::atomic<std::uint64_t> last_number = 0;
  const fs::path path = file_of(key);
  std::error_code failed;
  if (path.parent_path() != folder_) fs::create_directories(path.parent_path(), failed);
  if (failed) throw folder_error(path.parent_path(), failed.value());
  const fs::path draft = folder_ / ("draft=" + std::to_string(options_.process) + "." + std::to_string(getpid()) + "." +
                                    std::to_string(last_number.fetch_add(1, std::memory_order_relaxed)));
  FileDescriptor file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file.is_open()) throw folder_error(draft, errno);
  for (std::span<const std::byte> rest = value; !rest.empty();) {
    const ssize_t written = ::write(file.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      static_cast<void>(unlink(draft.c_str()));
      throw folder_error(draft, error);
    }
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
  // A network file system may report only now that there is no room.
  if (fsync(file.get()) != 0) {
    const int error = errno;
    static_cast<void>(unlink(draft.c_str()));
    throw folder_error(draft, error);
  }
  file.reset();
  if (rename(draft.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  static_cast<void>(unlink(draft.c_str()));
  throw folder_error(path, error);
}

std::optional<std::vector<std::byte>> FolderStore::read(const std::string& key) const {
  const fs::path path = file_of(key);
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) {
    if (errno == ENOENT) return std::nullopt;
    throw folder_error(path, errno);
  }
  std::vector<std::byte> value(max_value + 1);
  std::size_t size = 0;
  while (size < value.size()) {
    const ssize_t part = ::read(file.get(), value.data() + size, value.size() - size);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) throw folder_error(path, errno);
    if (part == 0) break;
    size += static_cast<std::size_t>(part);
  }
  if (size > max_value) throw StoreError(StoreKind::Protocol, "the store's file " + path.string() + " is too long");
  value.resize(size);
  return value;
}

void FolderStore::do_set(const std::string& key, std::span<const std::byte> value, Deadline deadline) {
  const FileDescriptor held = lock(key, deadline);
  write(key, value);
}

std::vector<std::byte> FolderStore::do_get(const std::string& key, Deadline deadline) {
  if (auto value = read(key)) return *std::move(value);
  FolderWatch watch(folder_);
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, longest_folder_pause)) {
    if (auto value = read(key)) return *std::move(value);
    const auto time = time_until(deadline, pause);
    if (time <= time.zero()) throw timeout(key, "it had no value");
    watch.wait(time);
  }
}

std::int64_t FolderStore::do_add(const std::string& key, std::int64_t amount, Deadline deadline) {
  const FileDescriptor held = lock(key, deadline);
  const std::int64_t sum = add_to_value(read(key).value_or(std::vector<std::byte>()), amount, key);
  write(key, value_of_number(sum));
  return sum;
}

std::vector<std::byte> FolderStore::do_compare_set(const std::string& key, std::span<const std::byte> expected,
                                                   std::span<const std::byte> desired, Deadline deadline) {
  const FileDescriptor held = lock(key, deadline);
  std::vector<std::byte> value = read(key).value_or(std::vector<std::byte>());
  if (!std::ranges::equal(value, expected)) return value;
  write(key, desired);
  return {desired.begin(), desired.end()};
}

void FolderStore::do_close(Deadline deadline) {
  const auto mark_of = [&](std::uint16_t process) { return folder_ / ("closed=" + std::to_string(process)); };
  if (options_.process != 0) {
    const FileDescriptor mark(
        open(mark_of(options_.process).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
    if (!mark.is_open()) throw folder_error(mark_of(options_.process), errno);
    return;
  }
  FolderWatch watch(folder_);
  std::error_code ignored;
  std::chrono::milliseconds pause{1};
  for (std::uint16_t process = 1; process < options_.processes;) {
    if (fs::exists(mark_of(process), ignored)) {
      ++process;
      continue;
    }
    const auto time = time_until(deadline, pause);
    if (time <= time.zero()) {
      remove_files();
      throw StoreError(StoreKind::Timeout, "process " + std::to_string(process) + " has not closed the store " +
                                               folder_.string() + " before the deadline");
    }
    watch.wait(time);
    pause = std::min(2 * pause, longest_folder_pause);
  }
  remove_files();
}

void FolderStore::remove_files() const noexcept {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  fs::remove(folder_.parent_path(), ignored);  // if it is empty
}

}  // namespace cox::detail
