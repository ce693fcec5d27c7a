#pragma once

#include <coxswain/runtime/io_error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cox {

/// A host buffer with one owner: what uploads take and downloads give. Move-only; may be handed to any thread. The
/// memory is given back by whoever destroys the last owner, on that thread. A moved-from Bytes is empty.
class Bytes {
 public:
  /// What gives adopted memory back; must not throw.
  using Release = void (*)(void* context) noexcept;
  /// Memory that Bytes allocates itself starts at a multiple of this.
  static constexpr std::size_t alignment = 64;

  Bytes() noexcept = default;
  Bytes(Bytes&& other) noexcept { swap(other); }
  Bytes& operator=(Bytes&& other) noexcept {
    Bytes(std::move(other)).swap(*this);
    return *this;
  }
  ~Bytes() {
    if (release_ != nullptr) release_(context_);
  }

  /// `size` bytes whose content is not defined. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes uninitialized(std::size_t size);
  /// `size` zero bytes. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes zeroed(std::size_t size);
  /// A copy of `data`. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes copy_of(std::span<const std::byte> data);
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] static Bytes copy_of(std::span<const T> data) {
    return copy_of(std::as_bytes(data));
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] static Bytes copy_of(const std::vector<T>& data) {
    return copy_of(std::as_bytes(std::span<const T>(data)));
  }
  /// Takes the vector over without copying its elements; its own alignment stays.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] static Bytes from_vector(std::vector<T> data) {
    auto owner = std::make_unique<std::vector<T>>(std::move(data));
    const auto bytes = std::as_writable_bytes(std::span<T>(*owner));
    return adopt(bytes.data(), bytes.size(), owner.release(),
                 [](void* context) noexcept { delete static_cast<std::vector<T>*>(context); });
  }
  /// Owns `size` bytes at `data` from now on; calls `release(context)` once, when they are no longer needed.
  [[nodiscard]] static Bytes adopt(std::byte* data, std::size_t size, void* context, Release release) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::span<std::byte> span() noexcept { return {data_, size_}; }
  [[nodiscard]] std::span<const std::byte> span() const noexcept { return {data_, size_}; }

  /// The bytes as elements of T. Throws IoError ElementSize if the size is no multiple of sizeof(T) or the data is not
  /// aligned for T.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<const T> as() const {
    require_elements(sizeof(T), alignof(T));
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<T> as() {
    require_elements(sizeof(T), alignof(T));
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  /// A copy of the bytes as elements of T, whatever their alignment. Throws IoError ElementSize.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> to_vector() const {
    require_elements(sizeof(T), 1);
    std::vector<T> elements(size_ / sizeof(T));
    if (size_ > 0) std::memcpy(elements.data(), data_, size_);
    return elements;
  }

  void swap(Bytes& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(context_, other.context_);
    std::swap(release_, other.release_);
  }
  /// Same size and content.
  friend bool operator==(const Bytes& a, const Bytes& b) noexcept {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data_, b.data_, a.size_) == 0);
  }

 private:
  void require_elements(std::size_t size, std::size_t alignment) const;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void* context_ = nullptr;
  Release release_ = nullptr;
};

}  // namespace cox
