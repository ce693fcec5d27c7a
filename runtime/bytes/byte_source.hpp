#pragma once

#include <cstddef>
#include <span>

namespace cox {

/// The content of a LazyAllocation, opened for reading. One thread at a time.
class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  /// Fills `destination` with the bytes that start at `offset` in the allocation. Blocks. Throws IoError; then the
  /// content of `destination` is undefined. Precondition: offset + destination.size() is at most the size of the
  /// allocation.
  virtual void read(std::size_t offset, std::span<std::byte> destination) = 0;
};

}  // namespace cox
