#include <coxswain/servers/cuda/compile/kernel_entry.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cox::detail {
namespace {

constexpr std::string_view magic = "COXKERN2";
constexpr std::size_t head_size = 8 + 3 * 8;  // everything before the checksum
constexpr std::size_t body_offset = head_size + 8;

using Head = std::array<std::byte, head_size>;

// Copies `more` to the beginning of `rest`, and removes the written part from `rest`.
void put(std::span<std::byte>& rest, std::span<const std::byte> more) {
  std::ranges::copy(more, rest.begin());
  rest = rest.subspan(more.size());
}

void put(std::span<std::byte>& rest, std::string_view text) { put(rest, std::as_bytes(std::span(text))); }

void put(std::span<std::byte>& rest, std::uint64_t value) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((value >> (8 * i)) & 0xffU);
  put(rest, bytes);
}

Head head_of(std::uint64_t key_size, std::uint64_t name_size, std::uint64_t image_size) {
  Head head{};
  std::span<std::byte> rest(head);
  put(rest, magic);
  put(rest, key_size);
  put(rest, name_size);
  put(rest, image_size);
  return head;
}

std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i > 0; --i) value = (value << 8U) | std::to_integer<std::uint64_t>(bytes[offset + i - 1]);
  return value;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<std::byte> encode_entry(const KernelKey& key, const CompiledKernel& kernel) {
  std::vector<std::byte> file(body_offset + key.text().size() + kernel.lowered_name.size() + kernel.image.size());
  const std::span<std::byte> body = std::span(file).subspan(body_offset);
  std::span<std::byte> rest = body;
  put(rest, key.text());
  put(rest, kernel.lowered_name);
  put(rest, kernel.image);
  const Head head = head_of(key.text().size(), kernel.lowered_name.size(), kernel.image.size());
  rest = file;
  put(rest, head);
  put(rest, checksum_of({head, body}));
  return file;
}

std::optional<CompiledKernel> decode_entry(const KernelKey& key, std::span<const std::byte> file) {
  if (file.size() < body_offset) return std::nullopt;
  const auto head = file.first(head_size);
  const auto body = file.subspan(body_offset);
  const std::uint64_t key_size = number_at(head, 8);
  const std::uint64_t name_size = number_at(head, 16);
  const std::uint64_t image_size = number_at(head, 24);
  if (key_size != key.text().size() || key_size > body.size() || name_size > body.size() - key_size ||
      image_size != body.size() - key_size - name_size)
    return std::nullopt;
  if (!std::ranges::equal(head, head_of(key_size, name_size, image_size))) return std::nullopt;
  if (number_at(file, head_size) != checksum_of({head, body})) return std::nullopt;
  if (text_of(body.first(key_size)) != key.text()) return std::nullopt;
  CompiledKernel kernel;
  kernel.lowered_name = text_of(body.subspan(key_size, name_size));
  const auto image = body.subspan(key_size + name_size);
  kernel.image.assign(image.begin(), image.end());
  return kernel;
}

}  // namespace cox::detail
