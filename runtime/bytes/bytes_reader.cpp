#include <coxswain/runtime/bytes/bytes_reader.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/bytes/lazy_allocation.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <cstring>
#include <string>

namespace cox {

BytesReader::BytesReader(const Bytes& bytes)
    : memory_(bytes.resident()),
      source_(memory_ != nullptr || bytes.empty() ? nullptr : bytes.lazy().open()),
      size_(bytes.size()) {}

void BytesReader::read(std::span<std::byte> to) {
  require_remaining(to.size());
  if (to.empty()) return;
  if (source_ != nullptr) {
    source_->read(position_, to);
  } else {
    std::memcpy(to.data(), memory_ + position_, to.size());
  }
  position_ += to.size();
}

void BytesReader::skip(std::size_t count) {
  require_remaining(count);
  position_ += count;
}

void BytesReader::require_remaining(std::size_t count) const {
  if (count > remaining())
    throw IoError(IoError::Kind::OutOfBounds, "cannot read " + format_byte_count(count) + " at offset " +
                                                  std::to_string(position_) + " of " + format_byte_count(size_));
}

}  // namespace cox
