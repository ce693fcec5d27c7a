#pragma once

#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/tensor/memory_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cox::fuzz {

using ByteVector = std::vector<std::byte>;

/// A tensor of two dimensions, as it was laid out on its device.
struct Tensor {
  MemoryLayout layout;
  std::size_t rows;
  std::size_t columns;
  std::size_t elem_size;

  [[nodiscard]] CopyDescriptor descriptor() const { return layout.copy_descriptor({rows, columns}, elem_size); }
  /// Some of its rows.
  [[nodiscard]] CopyDescriptor descriptor(std::size_t first, std::size_t count) const {
    const std::size_t pitch = columns == 0 ? 0 : layout.strides[0] * elem_size;
    return layout.memory.offset_start(first * pitch).copy_descriptor({count, columns}, layout.strides, elem_size);
  }
};

/// What one allocation must hold: the bytes of its window, or the dense elements of its tensor.
struct Buffer {
  std::size_t device = 0;
  Handle handle;
  std::optional<Tensor> tensor;
  ByteVector bytes;
  bool known = true;        ///< false: the contents are not defined, and may be poisoned (L14)
  bool poisoned = false;    ///< they are; then they are not known
  std::uint32_t joint = 0;  ///< devices whose shutdown may have kept the contents from being made, by bits

  void poison() noexcept {
    known = false;
    poisoned = true;
  }

  [[nodiscard]] std::size_t size() const noexcept { return bytes.size(); }
};
using BufferPtr = std::shared_ptr<Buffer>;

/// A part of a buffer that is no tensor.
struct Window {
  BufferPtr buffer;
  std::size_t begin = 0;
  std::size_t size = 0;

  [[nodiscard]] Handle handle() const {
    return buffer->handle.offset_start(begin).offset_end(buffer->size() - begin - size);
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return std::span(buffer->bytes).subspan(begin, size); }
  [[nodiscard]] bool is_whole() const noexcept { return size == buffer->size(); }
  [[nodiscard]] std::uint32_t word(std::size_t index) const {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes().data() + index * sizeof(value), sizeof(value));
    return value;
  }
  void set_word(std::size_t index, std::uint32_t value) const {
    std::memcpy(bytes().data() + index * sizeof(value), &value, sizeof(value));
  }
  /// The window has been written: what it has now came from bytes that were known or not.
  void written(bool known, std::uint32_t joint) const {
    if (is_whole()) {
      buffer->known = known;
      buffer->poisoned = false;
      buffer->joint = joint;
    } else {
      buffer->known = buffer->known && known;
      buffer->joint |= joint;
    }
  }
};

/// A copy of what a buffer or a part of it must hold.
struct Content {
  ByteVector bytes;
  bool known = true;
  bool poisoned = false;
  std::uint32_t joint = 0;
};

}  // namespace cox::fuzz
