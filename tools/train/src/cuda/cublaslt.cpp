#include <cuda/cublaslt.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace train::cublaslt {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Folders PREFIX/lib/python3*/{site,dist}-packages of the Python installations in the usual places and on PATH.
std::vector<fs::path> site_packages() {
  std::vector<fs::path> prefixes;
  for (const char* const name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = variable(name); !prefix.empty()) prefixes.emplace_back(prefix);
  std::istringstream path(variable("PATH"));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::error_code ignored;
    if (fs::exists(fs::path(folder) / "python3", ignored)) prefixes.push_back(fs::path(folder).parent_path());
  }
  if (const std::string home = variable("HOME"); !home.empty()) prefixes.push_back(fs::path(home) / ".local");
  for (const char* const usual : {"/usr/local", "/usr"}) prefixes.emplace_back(usual);
  std::vector<fs::path> found;
  for (const fs::path& prefix : prefixes)
    for (const char* const lib : {"lib", "lib64"}) {
      std::error_code error;
      for (fs::directory_iterator entry(prefix / lib, error), end; !error && entry != end; entry.increment(error))
        if (entry->path().filename().string().starts_with("python3"))
          for (const char* const packages : {"site-packages", "dist-packages"})
            found.push_back(entry->path() / packages);
    }
  return found;
}

std::vector<std::string> candidates() {
  if (const std::string file = variable("COX_TRAIN_CUBLASLT"); !file.empty()) return {file};
  const std::vector<std::string> names{"libcublasLt.so.13", "libcublasLt.so.12"};
  std::vector<fs::path> folders;
  for (const char* const name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string toolkit = variable(name); !toolkit.empty()) folders.push_back(fs::path(toolkit) / "lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  for (const fs::path& packages : site_packages())
    for (const char* const wheel : {"nvidia/cu13/lib", "nvidia/cublas/lib"}) folders.push_back(packages / wheel);
  std::vector<std::string> files = names;  // the loader searches for these
  for (const fs::path& folder : folders)
    for (const std::string& name : names) {
      std::error_code ignored;
      if (fs::exists(folder / name, ignored)) files.push_back((folder / name).string());
    }
  return files;
}

template <class Function>
bool set(Function& function, void* library, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool load(Functions& f, void* library) {
  return set(f.version, library, "cublasLtGetVersion") && set(f.create, library, "cublasLtCreate") &&
         set(f.desc_create, library, "cublasLtMatmulDescCreate") &&
         set(f.desc_destroy, library, "cublasLtMatmulDescDestroy") &&
         set(f.desc_set, library, "cublasLtMatmulDescSetAttribute") &&
         set(f.layout_create, library, "cublasLtMatrixLayoutCreate") &&
         set(f.layout_destroy, library, "cublasLtMatrixLayoutDestroy") &&
         set(f.layout_set, library, "cublasLtMatrixLayoutSetAttribute") &&
         set(f.preference_create, library, "cublasLtMatmulPreferenceCreate") &&
         set(f.preference_destroy, library, "cublasLtMatmulPreferenceDestroy") &&
         set(f.preference_set, library, "cublasLtMatmulPreferenceSetAttribute") &&
         set(f.heuristic, library, "cublasLtMatmulAlgoGetHeuristic") && set(f.matmul, library, "cublasLtMatmul");
}

struct Found {
  Functions functions{};
  bool usable = false;
  std::string why_not;
};

Found open() {
  Found found;
  if (variable("COX_TRAIN_CUBLASLT") == "none") {
    found.why_not = "COX_TRAIN_CUBLASLT is none";
    return found;
  }
  for (const std::string& file : candidates()) {
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its functions are kept
    if (library == nullptr) {
      found.why_not += (found.why_not.empty() ? "" : "; ") + std::string(::dlerror());
    } else if (!load(found.functions, library)) {
      found.why_not += (found.why_not.empty() ? "" : "; ") + file + " lacks functions";
    } else {
      found.functions.file = file;
      found.usable = true;
      return found;
    }
  }
  return found;
}

}  // namespace

const Functions* find(std::string& why_not) {
  static const Found found = open();
  if (!found.usable) why_not = found.why_not;
  return found.usable ? &found.functions : nullptr;
}

}  // namespace train::cublaslt
