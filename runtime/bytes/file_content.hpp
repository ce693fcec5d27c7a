#pragma once

#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace cox::detail {

/// A file from an offset on. The file is open only while it is being read, so that thousands of these objects hold no
/// file descriptors. Reads with pread: reading a file that was truncated is then an error, whereas access to a mapped
/// one would end the process with SIGBUS.
class FileContent final : public LazyContent {
 public:
  FileContent(std::string path, std::uint64_t offset) noexcept : path_(std::move(path)), offset_(offset) {}

  /// Throws IoError FileUnreadable. The source throws that, or FileTooShort if the file ends before the destination of
  /// a read is full.
  [[nodiscard]] std::unique_ptr<ByteSource> open(std::size_t offset, std::size_t size) const override;

 private:
  std::string path_;
  std::uint64_t offset_;
};

}  // namespace cox::detail
