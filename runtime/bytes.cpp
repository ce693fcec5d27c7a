#include <coxswain/runtime/bytes.hpp>

#include <coxswain/runtime/byte_count.hpp>

#include <new>

namespace cox {

Bytes Bytes::uninitialized(std::size_t size) {
  if (size == 0) return {};
  void* memory = ::operator new(size, std::align_val_t{alignment}, std::nothrow);
  if (memory == nullptr) throw IoError::out_of_host_memory(size);
  return adopt(static_cast<std::byte*>(memory), size, memory,
               [](void* context) noexcept { ::operator delete(context, std::align_val_t{alignment}); });
}

Bytes Bytes::zeroed(std::size_t size) {
  Bytes bytes = uninitialized(size);
  if (size > 0) std::memset(bytes.data(), 0, size);
  return bytes;
}

Bytes Bytes::copy_of(std::span<const std::byte> data) {
  Bytes bytes = uninitialized(data.size());
  if (!data.empty()) std::memcpy(bytes.data(), data.data(), data.size());
  return bytes;
}

Bytes Bytes::adopt(std::byte* data, std::size_t size, void* context, Release release) noexcept {
  Bytes bytes;
  bytes.data_ = data;
  bytes.size_ = size;
  bytes.context_ = context;
  bytes.release_ = release;
  return bytes;
}

void Bytes::require_elements(std::size_t size, std::size_t required_alignment) const {
  if (size_ % size != 0)
    throw IoError(IoError::Kind::ElementSize,
                  format_byte_count(size_) + " are no whole number of elements of " + format_byte_count(size));
  if (reinterpret_cast<std::uintptr_t>(data_) % required_alignment != 0)
    throw IoError(IoError::Kind::ElementSize,
                  "the bytes do not start at a multiple of " + format_byte_count(required_alignment));
}

}  // namespace cox
