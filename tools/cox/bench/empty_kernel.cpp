#include <coxswain/tools/cox/bench/empty_kernel.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace cox::bench {

template <>
HostKernel empty_kernel() {
  return {"empty", CubeDim::single(), 0, [](const KernelContext&) {}};
}

#ifdef COX_HAS_CUDA
// Loaded as an image, so that NVRTC is not needed.
template <>
CudaKernel empty_kernel() {
  static constexpr std::string_view text =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n";
  return CudaKernel::from_image("empty", CubeDim::single(), std::as_bytes(std::span(text)));
}
#endif

}  // namespace cox::bench
