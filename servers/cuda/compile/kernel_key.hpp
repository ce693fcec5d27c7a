#pragma once

#include <coxswain/servers/cuda/compile/compile.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

namespace cox::detail {

/// CRC-64 (ECMA-182) of the concatenated bytes. Detects damage, not forgery.
[[nodiscard]] std::uint64_t checksum_of(std::initializer_list<std::span<const std::byte>> parts) noexcept;

/// Everything that the result of compiling a kernel depends on: source, headers, options, architecture, NVRTC, the
/// toolkit's headers; or a ready-made image. Two keys are equal if all of that is equal. Copies share the text.
class KernelKey {
 public:
  /// Throws std::bad_alloc.
  explicit KernelKey(std::string text);

  /// The full key.
  [[nodiscard]] const std::string& text() const noexcept { return *text_; }
  /// A file name for the key, of 16 hexadecimal digits. Different keys may have the same: compare the text, too.
  [[nodiscard]] std::string short_name() const;

  friend bool operator==(const KernelKey& a, const KernelKey& b) noexcept {
    return a.checksum_ == b.checksum_ && *a.text_ == *b.text_;
  }
  /// Some total order, for maps.
  friend std::strong_ordering operator<=>(const KernelKey& a, const KernelKey& b) noexcept {
    const std::strong_ordering by_checksum = a.checksum_ <=> b.checksum_;
    return by_checksum != 0 ? by_checksum : *a.text_ <=> *b.text_;
  }

 private:
  std::shared_ptr<const std::string> text_;
  std::uint64_t checksum_;
};

[[nodiscard]] KernelKey key_of(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture);
/// The key of a ready-made image, which it has a copy of.
[[nodiscard]] KernelKey key_of(std::span<const std::byte> image);

}  // namespace cox::detail
