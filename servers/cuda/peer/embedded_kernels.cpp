#include <coxswain/servers/cuda/peer/embedded_kernels.hpp>

#include <coxswain/runtime/base/fnv1a.hpp>

#include <algorithm>
#include <array>

// Where nvcc is present, the build defines COX_PEER_KERNEL_IMAGES, the name of a file that tools/precompile writes. It
// has a line COX_IMAGE(name, checksum of the source, "file of the fatbin") for each image. See CoxPeerKernels.cmake.
#ifdef COX_PEER_KERNEL_IMAGES

// The assembler copies the file into the section of constants.
#define COX_IMAGE(name, checksum, file)                                        \
  __asm__(                                                                     \
      ".pushsection .rodata\n"                                                 \
      ".balign 16\n"                                                           \
      ".globl cox_image_" #name                                                \
      "\n"                                                                     \
      ".hidden cox_image_" #name                                               \
      "\n"                                                                     \
      "cox_image_" #name                                                       \
      ":\n"                                                                    \
      ".incbin \"" file                                                        \
      "\"\n"                                                                   \
      ".globl cox_image_end_" #name                                            \
      "\n"                                                                     \
      ".hidden cox_image_end_" #name                                           \
      "\n"                                                                     \
      "cox_image_end_" #name                                                   \
      ":\n"                                                                    \
      ".popsection\n");                                                        \
  extern "C" [[gnu::visibility("hidden")]] const std::byte cox_image_##name[]; \
  extern "C" [[gnu::visibility("hidden")]] const std::byte cox_image_end_##name[];
#include COX_PEER_KERNEL_IMAGES
#undef COX_IMAGE

namespace cox::detail {

const EmbeddedKernels& EmbeddedKernels::of_peers() noexcept {
  static constexpr std::array cubins{COX_PEER_KERNEL_CUBINS};
#define COX_IMAGE(name, checksum, file) Image{checksum, {cox_image_##name, cox_image_end_##name}},
  static const std::array images{
#include COX_PEER_KERNEL_IMAGES
  };
#undef COX_IMAGE
  static const EmbeddedKernels all{COX_PEER_KERNEL_TOOLKIT, cubins, cubins.front(), images};
  return all;
}

}  // namespace cox::detail

#else

namespace cox::detail {

const EmbeddedKernels& EmbeddedKernels::of_peers() noexcept {
  static constexpr EmbeddedKernels none;
  return none;
}

}  // namespace cox::detail

#endif

namespace cox::detail {

ComputeCapability capability_of(const CudaContext& context) {
  return {context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
          context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
}

bool EmbeddedKernels::run_on(ComputeCapability device, int driver_version) const noexcept {
  if (images.empty() || driver_version / 1000 < toolkit / 1000) return false;
  const int capability = 10 * device.major + device.minor;
  const bool has_cubin =
      std::ranges::any_of(cubins, [&](int cubin) { return cubin / 10 == device.major && cubin <= capability; });
  return has_cubin || (ptx != 0 && ptx <= capability && driver_version >= toolkit);
}

std::span<const std::byte> EmbeddedKernels::find(std::string_view source) const noexcept {
  const auto found = std::ranges::find(images, fnv1a(source), &Image::source);
  return found == images.end() ? std::span<const std::byte>() : found->fatbin;
}

}  // namespace cox::detail
