#include <coxswain/runtime/bytes/file_content.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <source_location>
#include <span>
#include <system_error>

namespace cox::detail {
namespace {

static_assert(sizeof(off_t) == 8, "offsets in files have 64 bits");

int open_to_read(const char* path) noexcept {
  for (;;) {
    // O_NONBLOCK: opening a FIFO must not block until it has a writer. The flag has no effect on regular files.
    const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0 || errno != EINTR) return file;
  }
}

std::string cannot_read(const std::string& path, std::uint64_t offset, std::size_t size) {
  return "cannot read " + format_byte_count(size) + " at offset " + std::to_string(offset) + " of '" + path + "': ";
}

IoError unreadable(const std::string& path, std::uint64_t offset, std::size_t size, int code) {
  const std::error_code error(code, std::generic_category());
  return {IoError::Kind::FileUnreadable, cannot_read(path, offset, size) + error.message(),
          std::source_location::current(), std::make_exception_ptr(std::system_error(error))};
}

IoError too_short(const std::string& path, std::uint64_t offset, std::size_t size, int file) {
  struct stat facts{};
  const std::string had = ::fstat(file, &facts) == 0 && facts.st_size >= 0
                              ? "has " + format_byte_count(static_cast<std::size_t>(facts.st_size))
                              : "ends before that offset";
  return {IoError::Kind::FileTooShort, cannot_read(path, offset, size) + "the file " + had};
}

// The open file, read from an offset on.
class FileSource final : public ByteSource {
 public:
  // `size` is used only in the error message.
  FileSource(const std::string& path, std::uint64_t offset, std::size_t size)
      : path_(path), offset_(offset), file_(open_to_read(path.c_str())) {
    if (file_ < 0) throw unreadable(path, offset, size, errno);
  }
  ~FileSource() override { ::close(file_); }

  void read(std::size_t offset, std::span<std::byte> destination) override {
    const std::uint64_t start = offset_ + offset;
    std::size_t done = 0;
    while (done < destination.size()) {
      const ssize_t got =
          ::pread(file_, destination.data() + done, destination.size() - done, static_cast<off_t>(start + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw unreadable(path_, start, destination.size(), errno);
      if (got == 0) throw too_short(path_, start, destination.size(), file_);
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  const std::string& path_;
  std::uint64_t offset_;
  int file_;
};

}  // namespace

std::unique_ptr<ByteSource> FileContent::open(std::size_t offset, std::size_t size) const {
  return std::make_unique<FileSource>(path_, offset_ + offset, size);
}

}  // namespace cox::detail
