#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <coxswain/servers/cuda/driver/fault_state.hpp>

#include <algorithm>
#include <cstddef>

namespace cox {

std::string GpuFault::to_string() const {
  constexpr std::size_t most_named = 4;
  std::string text =
      name + " (" + std::to_string(code) + ") from " + call + ": all CUDA devices of the process are lost; suspects: ";
  if (suspects.empty()) return text + "none, nothing was known to be under way";
  const std::size_t named = std::min(suspects.size(), most_named);
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += "; ";
    text += suspects[i].operation + " on " + suspects[i].place + " at " + suspects[i].site;
  }
  if (named < suspects.size()) text += "; and " + std::to_string(suspects.size() - named) + " more";
  return text;
}

std::shared_ptr<const GpuFault> gpu_fault() noexcept {
  const detail::FaultState& state = detail::FaultState::instance();
  return state.known() ? state.fault() : nullptr;
}

int exit_code(int code) noexcept { return detail::FaultState::instance().known() ? gpu_fault_exit_code : code; }

}  // namespace cox
