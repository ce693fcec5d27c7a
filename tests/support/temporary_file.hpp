#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace cox::test {

/// `count` bytes, each different from its neighbours: those of every seed are others.
inline std::vector<std::byte> pattern(std::size_t count, std::size_t seed = 0) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 31 + i / 251 + seed * 97 + 1) & 0xffU);
  return bytes;
}

/// A file with that content, for as long as this lives.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : TemporaryFile(std::vector<std::byte>(reinterpret_cast<const std::byte*>(text.data()),
                                             reinterpret_cast<const std::byte*>(text.data() + text.size()))) {}
  explicit TemporaryFile(const std::vector<std::byte>& content)
      : path_((std::filesystem::temp_directory_path() / "cox-test-XXXXXX").string()) {
    const int file = ::mkstemp(path_.data());
    if (file < 0) throw std::runtime_error("cannot make a file like " + path_);
    ::close(file);
    write(content);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { remove(); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void write(const std::vector<std::byte>& content) const {
    std::ofstream stream(path_, std::ios::binary | std::ios::trunc);
    stream.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    if (!stream.flush()) throw std::runtime_error("cannot write " + path_);
  }
  void resize(std::size_t size) const { std::filesystem::resize_file(path_, size); }
  void remove() const noexcept {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

 private:
  std::string path_;
};

}  // namespace cox::test
