#include <coxswain/tools/cox/supervisor/program_end.hpp>

#include <cstring>

namespace cox::tools {

std::string ProgramEnd::to_string() const {
  if (is_lost) return "is lost with its node";
  if (signal == 0) return "ended with code " + std::to_string(code);
  const char* const name = ::sigdescr_np(signal);
  return "was ended by signal " + std::to_string(signal) + (name != nullptr ? " (" + std::string(name) + ")" : "");
}

}  // namespace cox::tools
