#include <coxswain/servers/cuda/compile/kernel_key.hpp>

#include <coxswain/servers/cuda/driver/nvrtc.hpp>

#include <fmt/format.h>
#include <boost/crc.hpp>

#include <string_view>
#include <utility>

namespace cox::detail {
namespace {

// The length comes first, so that no two different sequences of fields have the same text.
void append_field(std::string& text, std::string_view field) {
  text += std::to_string(field.size());
  text += ':';
  text += field;
}

}  // namespace

std::uint64_t checksum_of(std::initializer_list<std::span<const std::byte>> parts) noexcept {
  boost::crc_optimal<64, 0x42F0E1EBA9EA3693, 0, 0, false, false> crc;
  for (const std::span<const std::byte> part : parts) crc.process_bytes(part.data(), part.size());
  return crc.checksum();
}

KernelKey::KernelKey(std::string text)
    : text_(std::make_shared<const std::string>(std::move(text))),
      checksum_(checksum_of({std::as_bytes(std::span(*text_))})) {}

std::string KernelKey::short_name() const { return fmt::format("{:016x}", checksum_); }

KernelKey key_of(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture) {
  std::string text;
  append_field(text, "source");
  append_field(text, std::to_string(nvrtc.version));
  append_field(text, nvrtc.includes_version);
  append_field(text, architecture);
  append_field(text, source.text);
  append_field(text, source.name_expression);
  append_field(text, std::to_string(source.headers.size()));
  for (const CudaHeader& header : source.headers) {
    append_field(text, header.name);
    append_field(text, header.content);
  }
  for (const std::string& option : all_options(nvrtc, source.options, architecture)) append_field(text, option);
  return KernelKey(std::move(text));
}

KernelKey key_of(std::span<const std::byte> image) {
  std::string text;
  append_field(text, "image");
  append_field(text, {reinterpret_cast<const char*>(image.data()), image.size()});
  return KernelKey(std::move(text));
}

}  // namespace cox::detail
