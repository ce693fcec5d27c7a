#include <coxswain/servers/cuda/driver/last_fault.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace cox {

std::optional<std::string> last_gpu_fault() {
  const char* const path = std::getenv("COX_LAST_FAULT");
  if (path == nullptr || *path == '\0') return std::nullopt;
  const std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace cox
