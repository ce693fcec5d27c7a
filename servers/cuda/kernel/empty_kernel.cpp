#include <coxswain/servers/cuda/kernel/empty_kernel.hpp>

#include <coxswain/servers/cuda/kernel/kernel_library.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <span>
#include <string_view>

namespace cox::detail {

CUfunction load_empty_kernel(ComputeCapability device) {
  static_assert(LaunchGraphs::max_argument_bytes == 4096);
  static constexpr std::string_view ptx = R"ptx(
.version 7.0
.target sm_70
.address_size 64
.visible .entry cox_empty(.param .align 8 .b8 arguments[4096])
{
	ret;
}
)ptx";
  return load_from_image(std::as_bytes(std::span(ptx.data(), ptx.size() + 1)), "cox_empty", device);
}

}  // namespace cox::detail
