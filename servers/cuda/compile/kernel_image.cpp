#include <coxswain/servers/cuda/compile/kernel_image.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace cox::detail {
namespace {

constexpr std::uint32_t fatbin_magic = 0xba55ed50U;
constexpr std::uint16_t elf_machine_cuda = 190;
constexpr std::size_t elf_abi_version = 8;  // offsets in the header of a 64-bit ELF file
constexpr std::size_t elf_machine = 18;
constexpr std::size_t elf_flags = 48;
constexpr std::size_t elf_header_size = 64;

template <class T>
T read(std::span<const std::byte> image, std::size_t offset) noexcept {
  T value{};
  if (offset + sizeof(T) <= image.size()) std::memcpy(&value, image.data() + offset, sizeof(T));
  return value;
}

/// The compute capability is in the lowest byte of the flags; from ABI version 8 (CUDA 13) on, in the second lowest.
int cubin_architecture(std::span<const std::byte> image) noexcept {
  const auto flags = read<std::uint32_t>(image, elf_flags);
  const bool newer = read<std::uint8_t>(image, elf_abi_version) >= 8;
  return static_cast<int>((newer ? flags >> 8U : flags) & 0xffU);
}

std::string name_of(int architecture) { return "sm_" + std::to_string(architecture); }

}  // namespace

KernelImage KernelImage::inspect(std::span<const std::byte> image) noexcept {
  if (read<std::uint32_t>(image, 0) == fatbin_magic) return {Kind::Fatbin, 0};
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  if (text.starts_with("\x7f"
                       "ELF")) {
    if (image.size() < elf_header_size || read<std::uint16_t>(image, elf_machine) != elf_machine_cuda) return {};
    return {Kind::Cubin, cubin_architecture(image)};
  }
  return {text.find(".version") != std::string_view::npos ? Kind::Ptx : Kind::Unknown, 0};
}

std::optional<std::string> KernelImage::refusal(int major, int minor) const {
  if (kind == Kind::Unknown) return "the image is neither PTX nor a cubin nor a fatbin";
  const int device = major * 10 + minor;
  if (architecture == 0 || (architecture / 10 == major && architecture <= device)) return std::nullopt;
  return "the image is for " + name_of(architecture) + ", and the device is an " + name_of(device);
}

}  // namespace cox::detail
