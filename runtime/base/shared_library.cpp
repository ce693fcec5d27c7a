#include <coxswain/runtime/base/shared_library.hpp>

#include <dlfcn.h>

namespace cox::detail {

SharedLibrary SharedLibrary::open(const std::vector<std::string>& files) {
  SharedLibrary library;
  for (const std::string& file : files) {
    library.handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_ != nullptr) {
      library.file_ = file;
      library.error_.clear();
      return library;
    }
    const char* const error = dlerror();
    if (!library.error_.empty()) library.error_ += "; ";
    library.error_ += error != nullptr ? error : file + " cannot be opened";
  }
  return library;
}

void* SharedLibrary::find(const char* symbol) const noexcept { return dlsym(handle_, symbol); }

}  // namespace cox::detail
