#include <coxswain/tools/cox/doctor/gather.hpp>

#include <unistd.h>
#include <array>

namespace cox::tools {
namespace {

std::map<std::string, std::string> gpu_environment() {
  constexpr std::array<std::string_view, 2> prefixes{"CUDA_", "NCCL_"};
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    for (const std::string_view prefix : prefixes) {
      if (text.starts_with(prefix)) found.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return found;
}

}  // namespace

Facts gather_facts() {
  Facts facts;
  gather_cuda(facts);
  facts.limits = gather_limits();
  facts.environment = gpu_environment();
#ifdef __aarch64__
  facts.arm = true;
#endif
  return facts;
}

}  // namespace cox::tools
