#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cox::detail {

/// SHA-256 (FIPS 180-4).
class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;

  void update(std::span<const std::byte> bytes) noexcept;
  void update(std::string_view text) noexcept { update(std::as_bytes(std::span(text))); }
  /// Length, then text, so that no two sequences of fields are alike.
  void update_field(std::string_view text) noexcept;
  /// Of all so far. Ends this.
  [[nodiscard]] Digest finish() noexcept;

  [[nodiscard]] static Digest of(std::span<const std::byte> bytes) noexcept {
    Sha256 hash;
    hash.update(bytes);
    return hash.finish();
  }

 private:
  void take_block(const std::byte* block) noexcept;

  std::array<std::uint32_t, 8> state_{0x6a09e667U, 0xbb67ae85U, 0x3c6ef372U, 0xa54ff53aU,
                                      0x510e527fU, 0x9b05688cU, 0x1f83d9abU, 0x5be0cd19U};
  std::array<std::byte, 64> pending_{};
  std::uint64_t length_ = 0;  // bytes
};

/// 64 hexadecimal digits.
[[nodiscard]] std::string to_hex(const Sha256::Digest& digest);

}  // namespace cox::detail
