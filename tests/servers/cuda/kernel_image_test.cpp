#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/compile/kernel_image.hpp>

#include <array>
#include <string_view>
#include <vector>

using cox::detail::KernelImage;
using Kind = KernelImage::Kind;

namespace {

KernelImage inspect(std::string_view text) { return KernelImage::inspect(std::as_bytes(std::span(text))); }

/// The header of a cubin.
std::vector<std::byte> cubin(unsigned abi_version, unsigned architecture) {
  std::vector<std::byte> header(64);
  constexpr std::array magic{0x7f, 'E' + 0, 'L' + 0, 'F' + 0};
  for (std::size_t i = 0; i < magic.size(); ++i) header[i] = static_cast<std::byte>(magic[i]);
  header[8] = static_cast<std::byte>(abi_version);
  header[18] = std::byte{190};
  header[abi_version >= 8 ? 49 : 48] = static_cast<std::byte>(architecture);
  return header;
}

}  // namespace

TEST_CASE("What an image is shows in its first bytes") {
  CHECK(inspect("// comment\n.version 8.0\n.target sm_80\n").kind == Kind::Ptx);
  CHECK(inspect("\x50\xed\x55\xba....").kind == Kind::Fatbin);
  CHECK(inspect("\x7f"
                "ELF, but of another kind and much too short")
            .kind == Kind::Unknown);
  CHECK(inspect("").kind == Kind::Unknown);
  CHECK(inspect("hello").kind == Kind::Unknown);
  const KernelImage older = KernelImage::inspect(cubin(7, 90));
  CHECK(older.kind == Kind::Cubin);
  CHECK(older.architecture == 90);
  CHECK(KernelImage::inspect(cubin(8, 103)).architecture == 103);
}

TEST_CASE("An image for another architecture is refused by name") {
  const KernelImage ampere = KernelImage::inspect(cubin(7, 80));
  CHECK(ampere.refusal(8, 0) == std::nullopt);
  CHECK(ampere.refusal(8, 9) == std::nullopt);
  CHECK(ampere.refusal(9, 0) == "the image is for sm_80, and the device is an sm_90");
  CHECK(KernelImage::inspect(cubin(7, 89)).refusal(8, 6) == "the image is for sm_89, and the device is an sm_86");
  CHECK(inspect(".version 8.0").refusal(9, 0) == std::nullopt);
  CHECK(inspect("hello").refusal(9, 0) == "the image is neither PTX nor a cubin nor a fatbin");
}
