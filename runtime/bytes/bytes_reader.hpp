#pragma once

#include <coxswain/runtime/bytes/byte_source.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace cox {

/// Copies Bytes out from front to back, part after part. Lazy ones come straight from their file, which stays open
/// meanwhile, into the memory given: nothing else is allocated, and all parts are from one file even if another takes
/// its name. One thread; the Bytes must outlive the reader and must not be written to meanwhile.
class BytesReader {
 public:
  /// Opens the file of lazy bytes. Throws IoError FileUnreadable.
  explicit BytesReader(const Bytes& bytes);
  explicit BytesReader(const Bytes&&) = delete;

  /// How many bytes are left.
  [[nodiscard]] std::size_t remaining() const noexcept { return size_ - position_; }
  /// Fills `to` with the next to.size() bytes. Blocks while a file is read. Throws IoError OutOfBounds if there are not
  /// so many left, FileUnreadable, FileTooShort; the position then stays, and the content of `to` is not defined.
  void read(std::span<std::byte> to);
  /// Passes over `count` bytes. Throws IoError OutOfBounds if there are not so many left.
  void skip(std::size_t count);

 private:
  void require_remaining(std::size_t count) const;

  const std::byte* memory_;             // null if the bytes are lazy, or none
  std::unique_ptr<ByteSource> source_;  // of lazy bytes
  std::size_t size_;
  std::size_t position_ = 0;
};

}  // namespace cox
