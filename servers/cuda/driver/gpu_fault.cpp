#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <algorithm>
#include <cstddef>

namespace cox {

std::string GpuFault::to_string() const {
  constexpr std::size_t max_named = 4;
  std::string text =
      name + " (" + std::to_string(code) + ") from " + call + ": all CUDA devices of the process are lost; suspects: ";
  if (suspects.empty()) return text + "none, no operation was known to be in flight";
  const std::size_t named = std::min(suspects.size(), max_named);
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += "; ";
    text += suspects[i].operation + " on " + suspects[i].place + " at " + suspects[i].site;
  }
  if (named < suspects.size()) text += "; and " + std::to_string(suspects.size() - named) + " more";
  return text;
}

}  // namespace cox
