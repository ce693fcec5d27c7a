#include <coxswain/servers/cuda/driver/nvrtc.hpp>

#include <coxswain/runtime/base/fnv1a.hpp>
#include <coxswain/runtime/base/library_search.hpp>
#include <coxswain/runtime/base/shared_library.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <dlfcn.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

namespace cox::detail {
namespace {

namespace fs = std::filesystem;

constexpr int oldest_nvrtc = 12000;

/// The library names, in order of preference. A driver does not load code of an NVRTC with a newer major version, so
/// its own major version comes first.
std::vector<std::string> names() {
  const Driver* const found = find_driver().driver;
  if (found != nullptr && found->version < 13000) return {"libnvrtc.so.12", "libnvrtc.so.13"};
  return {"libnvrtc.so.13", "libnvrtc.so.12"};
}

/// The folder that the library was loaded from.
fs::path folder_of(const Nvrtc& nvrtc) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(nvrtc.get_version), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const fs::path file = fs::canonical(info.dli_fname, error);
  return (error ? fs::path(info.dli_fname) : file).parent_path();
}

/// Opens libnvrtc-builtins in advance. NVRTC opens it by its bare name at the first compilation; it is in NVRTC's
/// folder, which the loader may not search.
void open_builtins(const Nvrtc& nvrtc) {
  const std::string name =
      "libnvrtc-builtins.so." + std::to_string(nvrtc.version / 1000) + "." + std::to_string(nvrtc.version % 1000 / 10);
  std::error_code ignored;
  const fs::path file = folder_of(nvrtc) / name;
  if (fs::exists(file, ignored)) static_cast<void>(SharedLibrary::open({file.string()}));
}

/// FNV-1a of the contents of some headers that change with every release, as far as they exist.
std::string version_of(const fs::path& folder) {
  std::uint64_t hash = fnv1a_begin;
  for (const char* const header : {"cuda_fp16.h", "cuda_bf16.h", "cuda_runtime_api.h", "cuda/std/__cccl/version.h",
                                   "cccl/cuda/std/__cccl/version.h"}) {
    std::ostringstream content;
    content << std::ifstream(folder / header, std::ios::binary).rdbuf();
    hash = fnv1a(content.view(), hash);
  }
  return std::to_string(hash);
}

/// Finds the headers that belong to the library, or else those of any toolkit.
void find_includes(Nvrtc& nvrtc) {
  std::vector<fs::path> places{folder_of(nvrtc).parent_path() / "include"};
  const SearchRoots roots = SearchRoots::of_process();
  for (const fs::path& toolkit : roots.toolkits) places.push_back(toolkit / "include");
  for (const fs::path& packages : roots.site_packages)
    for (const char* const wheel : {"nvidia/cu13/include", "nvidia/cuda_runtime/include"})
      places.push_back(packages / wheel);
  for (const fs::path& place : places) {
    std::error_code error;
    if (!fs::exists(place / "cuda_fp16.h", error)) continue;
    nvrtc.includes.push_back(place);
    if (fs::exists(place / "cccl", error)) nvrtc.includes.push_back(place / "cccl");
    nvrtc.includes_version = version_of(place);
    return;
  }
}

/// Fills in `nvrtc`. Returns an error text; empty if all is well.
std::string load(const SharedLibrary& library, Nvrtc& nvrtc) {
  std::string missing;
  const auto find = [&](const char* name) {
    void* const found = library.find(name);
    if (found == nullptr && missing.empty()) missing = name;
    return found;
  };
#define COX_NVRTC_ENTRY(member, function) nvrtc.member = reinterpret_cast<decltype(&function)>(find(#function));
#include <coxswain/servers/cuda/driver/nvrtc_entries.inc>
#undef COX_NVRTC_ENTRY
  if (!missing.empty()) return library.file() + " has no " + missing;
  int major = 0;
  int minor = 0;
  nvrtc.get_version(&major, &minor);
  nvrtc.version = major * 1000 + minor * 10;
  if (nvrtc.version < oldest_nvrtc) return library.file() + " is older than CUDA 12.0";
  open_builtins(nvrtc);
  find_includes(nvrtc);
  return {};
}

FoundNvrtc open_of_process() {
  const std::string given = settings().get<std::string>("compilation.nvrtc");
  const std::vector<std::string> wanted = names();
  const LibrarySearch search{given, wanted, {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}};
  return open_nvrtc(library_candidates(search, SearchRoots::of_process()),
                    given.empty() ? wanted.front() + " or " + wanted.back() : given);
}

}  // namespace

FoundNvrtc open_nvrtc(const std::vector<std::string>& files, const std::string& names) {
  const SharedLibrary library = SharedLibrary::open(files);
  if (!library)
    return {nullptr, "NVRTC, which compiles kernels, was not found as " + names +
                         " (setting compilation.nvrtc): " + library.error()};
  auto nvrtc = std::make_unique<Nvrtc>();
  std::string wrong = load(library, *nvrtc);
  if (!wrong.empty()) return {nullptr, "NVRTC was found, but cannot be used: " + wrong};
  return {std::move(nvrtc), {}};
}

const FoundNvrtc& find_nvrtc() {
  // Never destroyed: usable while static objects are destroyed.
  static const FoundNvrtc& found = *new FoundNvrtc(open_of_process());
  return found;
}

const Nvrtc& nvrtc() {
  const FoundNvrtc& found = find_nvrtc();
  if (found.nvrtc != nullptr) return *found.nvrtc;
  throw LaunchError(LaunchError::Kind::Compilation, found.error, std::source_location::current(),
                    std::make_exception_ptr(CudaError(CudaError::Kind::Unsupported, 0, found.error)));
}

}  // namespace cox::detail
