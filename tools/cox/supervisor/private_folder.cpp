#include <coxswain/tools/cox/supervisor/private_folder.hpp>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

namespace cox::tools {

PrivateFolder::PrivateFolder() {
  std::string name = std::filesystem::temp_directory_path() / "cox-run-XXXXXX";
  if (mkdtemp(name.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), "cannot create the temporary folder " + name);
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;  // remaining files are small, and no caller can handle the error
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace cox::tools
