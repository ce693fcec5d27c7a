#include <coxswain/servers/cuda/compile/kernel_key.hpp>

#include <coxswain/servers/cuda/driver/nvrtc.hpp>

namespace cox::detail {

KernelKey key_of(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture) {
  Sha256 hash;
  hash.update_field("source");
  hash.update_field(std::to_string(nvrtc.version));
  hash.update_field(nvrtc.includes_version);
  hash.update_field(architecture);
  hash.update_field(source.text);
  hash.update_field(source.name_expression);
  hash.update_field(std::to_string(source.headers.size()));
  for (const CudaHeader& header : source.headers) {
    hash.update_field(header.name);
    hash.update_field(header.content);
  }
  for (const std::string& option : all_options(nvrtc, source.options, architecture)) hash.update_field(option);
  return hash.finish();
}

KernelKey key_of(std::span<const std::byte> image) {
  Sha256 hash;
  hash.update_field("image");
  hash.update(image);
  return hash.finish();
}

}  // namespace cox::detail
