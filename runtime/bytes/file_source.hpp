#pragma once

#include <coxswain/runtime/bytes/byte_source.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace cox::detail {

/// An open file, read from an offset on. Reads with pread: reading a file that was truncated is then an error, whereas
/// access to a mapped one would end the process with SIGBUS.
class FileSource final : public ByteSource {
 public:
  using Path = std::shared_ptr<const std::string>;

  /// Opens the file; `size` is used only in the error message. Throws IoError FileUnreadable.
  FileSource(Path path, std::uint64_t offset, std::size_t size);
  ~FileSource() override;

  /// Throws IoError FileUnreadable, or FileTooShort if the file ends before `destination` is full.
  void read(std::size_t offset, std::span<std::byte> destination) override;

 private:
  Path path_;
  std::uint64_t offset_;
  int file_;
};

}  // namespace cox::detail
