#include <coxswain/tools/cox/output_file.hpp>

#include <coxswain/tools/cox/argument_error.hpp>

#include <cerrno>
#include <fstream>
#include <system_error>

namespace cox::tools {

void require_writable(std::string_view option, const std::string& path) {
  errno = 0;
  if (!std::ofstream(path, std::ios::app))
    throw ArgumentError(std::string(option) + ": cannot write '" + path +
                        "': " + std::generic_category().message(errno));
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << std::flush;
  return file.good();
}

}  // namespace cox::tools
