#include <coxswain/runtime/bytes/bytes.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/bytes/file_content.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <algorithm>
#include <cstring>
#include <string>

namespace cox {

namespace {

// The owner of adopted memory.
struct Adopted {
  ~Adopted() {
    if (release != nullptr) release(context);
  }
  void* context;
  Bytes::Release release;
};

}  // namespace

Bytes Bytes::with_capacity(std::size_t capacity) {
  HostAllocation* const allocation = detail::heap_allocation(capacity).release();
  return {allocation, allocation->data(), 0};
}

Bytes Bytes::uninitialized(std::size_t size) {
  if (size == 0) return {};
  Bytes bytes = with_capacity(size);
  bytes.size_ = size;
  return bytes;
}

Bytes Bytes::zeroed(std::size_t size) {
  Bytes bytes = uninitialized(size);
  if (size > 0) std::memset(bytes.data_, 0, size);
  return bytes;
}

Bytes Bytes::copy_of(std::span<const std::byte> data) {
  Bytes bytes = uninitialized(data.size());
  if (!data.empty()) std::memcpy(bytes.data_, data.data(), data.size());
  return bytes;
}

Bytes Bytes::from_file(std::string path, std::uint64_t offset, std::size_t size) {
  constexpr std::uint64_t longest = INT64_MAX;  // maximum size of a file
  if (offset > longest || size > longest - offset)
    throw IoError(IoError::Kind::OutOfBounds, "cannot use " + format_byte_count(size) + " at offset " +
                                                  std::to_string(offset) + " of '" + path +
                                                  "': no file can be that large");
  auto content = std::make_shared<const detail::FileContent>(std::move(path), offset);
  return from_allocation(std::make_unique<LazyAllocation>(AllocationProperty::File, std::move(content), 0, size));
}

Bytes Bytes::from_allocation(std::unique_ptr<HostAllocation> allocation) noexcept {
  if (allocation == nullptr) return {};
  std::byte* const data = allocation->data();
  const std::size_t size = allocation->size();
  return {allocation.release(), data, size};
}

Bytes Bytes::from_shared(std::shared_ptr<const void> keeper, std::span<const std::byte> data,
                         AllocationProperty property) {
  using Shared = detail::OwnedAllocation<std::shared_ptr<const void>>;
  return from_allocation(std::make_unique<Shared>(property, data, std::move(keeper)));
}

Bytes Bytes::adopt(std::byte* data, std::size_t size, void* context, Release release) {
  try {
    return from_allocation(std::make_unique<detail::OwnedAllocation<Adopted>>(
        AllocationProperty::Native, std::span<std::byte>(data, size), context, release));
  } catch (...) {
    if (release != nullptr) release(context);
    throw;
  }
}

std::size_t Bytes::capacity() const noexcept {
  const std::byte* const start = writable();
  return start == nullptr ? size_ : static_cast<std::size_t>(allocation_->data() + allocation_->size() - start);
}

std::byte* Bytes::exclusive(AccessPolicy policy) {
  if (size_ == 0) return resident();
  if (std::byte* const start = writable()) return start;
  if (policy == AccessPolicy::ZeroCopy)
    throw IoError(
        IoError::Kind::WouldCopy,
        "writing to " + format_byte_count(size_) +
            (is_resident() ? " that are shared or read-only would copy them first, which AccessPolicy::ZeroCopy forbids"
                           : " that are not in memory would read them first, which AccessPolicy::ZeroCopy forbids"));
  copy().swap(*this);
  return data_;
}

void Bytes::copy_to(std::span<std::byte> destination, std::size_t offset) const {
  require_range(offset, destination.size());
  if (destination.empty()) return;
  BytesReader reader(*this);
  reader.skip(offset);
  reader.read(destination);
}

Bytes Bytes::copy() const {
  Bytes bytes = uninitialized(size_);
  copy_to({bytes.data_, size_});
  return bytes;
}

Bytes Bytes::slice(std::size_t offset, std::size_t size) const {
  require_range(offset, size);
  if (size == 0) return {};
  if (size == size_) return share();
  std::byte* const start = resident();
  if (start == nullptr) return from_allocation(lazy().window(offset, size));
  allocation_->retain();
  return {allocation_, start + offset, size};
}

std::pair<Bytes, Bytes> Bytes::split(std::size_t offset) && {
  require_range(offset, 0);
  std::pair<Bytes, Bytes> parts(slice(0, offset), slice(offset, size_ - offset));
  Bytes().swap(*this);
  return parts;
}

void Bytes::reserve(std::size_t size) {
  if (size <= capacity()) return;
  Bytes bigger = with_capacity(size);
  copy_to({bigger.data_, size_});
  bigger.size_ = size_;
  swap(bigger);
}

void Bytes::append(std::span<const std::byte> more) {
  if (more.empty()) return;
  std::size_t total = 0;
  if (__builtin_add_overflow(size_, more.size(), &total)) throw IoError::out_of_host_memory(SIZE_MAX);
  const std::size_t room = capacity();
  if (total <= room) {
    std::memcpy(writable() + size_, more.data(), more.size());
    size_ = total;
    return;
  }
  Bytes bigger = with_capacity(std::max(total, room < SIZE_MAX / 2 ? 2 * room : total));
  copy_to({bigger.data_, size_});
  std::memcpy(bigger.data_ + size_, more.data(), more.size());
  bigger.size_ = total;
  swap(bigger);  // last, because `more` may point into the memory that this releases
}

void Bytes::require_resident() const {
  if (!is_resident())
    throw IoError(IoError::Kind::WouldCopy,
                  "direct access to " + format_byte_count(size_) +
                      " that are not in memory would read them first, which AccessPolicy::ZeroCopy forbids");
}

void Bytes::require_range(std::size_t offset, std::size_t size) const {
  if (offset > size_ || size > size_ - offset)
    throw IoError(IoError::Kind::OutOfBounds, format_byte_count(size) + " at offset " + std::to_string(offset) +
                                                  " exceed the size of " + format_byte_count(size_));
}

void Bytes::require_whole_elements(std::size_t size) const {
  if (size_ % size != 0)
    throw IoError(IoError::Kind::ElementSize,
                  format_byte_count(size_) + " are not a whole number of elements of " + format_byte_count(size));
}

void Bytes::require_aligned(const std::byte* data, std::size_t multiple) {
  if (reinterpret_cast<std::uintptr_t>(data) % multiple != 0)
    throw IoError(IoError::Kind::ElementSize,
                  "the bytes start at an address that is not a multiple of " + format_byte_count(multiple));
}

BytesReader::BytesReader(const Bytes& bytes)
    : memory_(bytes.resident()),
      source_(memory_ != nullptr || bytes.empty() ? nullptr : bytes.lazy().open()),
      size_(bytes.size()) {}

void BytesReader::read(std::span<std::byte> destination) {
  require_remaining(destination.size());
  if (destination.empty()) return;
  if (source_ != nullptr) {
    source_->read(position_, destination);
  } else {
    std::memcpy(destination.data(), memory_ + position_, destination.size());
  }
  position_ += destination.size();
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
