#pragma once

#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/driver/nvrtc.hpp>

namespace cox::test {

/// NVRTC; null where there is none, which is said as a warning: such a test is skipped.
inline const detail::Nvrtc* compiler() {
  const detail::FoundNvrtc& found = detail::find_nvrtc();
  if (found.nvrtc == nullptr) WARN("skipped: " + found.error);
  return found.nvrtc.get();
}

/// y[i] = factor * x[i].
inline constexpr const char* scale_source = R"(
extern "C" __global__ void scale(const float* x, float* y, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = factor * x[i];
}
)";

}  // namespace cox::test
