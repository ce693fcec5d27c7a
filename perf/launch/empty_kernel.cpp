#include <coxswain/perf/launch/empty_kernel.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace cox::perf {

CudaKernel empty_kernel(unsigned parameters) {
  const std::string name = "empty_" + std::to_string(parameters);
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry " + name + "(";
  for (unsigned i = 0; i < parameters; ++i)
    text += std::string(i == 0 ? "" : ", ") + ".param .u64 parameter_" + std::to_string(i);
  text += ")\n{\n  ret;\n}\n";
  return CudaKernel::from_image(name, CubeDim::single(), std::as_bytes(std::span<const char>(text)));
}

}  // namespace cox::perf
