#include <coxswain/runtime/base/library_search.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace cox::detail {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void add(Paths& paths, const fs::path& path) {
  if (is_there(path) && std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// The folders of $PATH.
Paths program_folders() {
  Paths folders;
  std::string_view rest = variable("PATH");
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) folders.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return folders;
}

/// Adds PREFIX/{lib,lib64}/python3*/{site,dist}-packages, where they exist.
void add_site_packages(Paths& found, const fs::path& prefix) {
  for (const char* const lib : {"lib", "lib64"}) {
    std::error_code error;
    Paths versions;
    for (fs::directory_iterator entry(prefix / lib, error), end; !error && entry != end; entry.increment(error))
      if (entry->path().filename().string().starts_with("python3")) versions.push_back(entry->path());
    std::ranges::sort(versions, std::ranges::greater{});
    for (const fs::path& version : versions)
      for (const char* const packages : {"site-packages", "dist-packages"}) add(found, version / packages);
  }
}

}  // namespace

SearchRoots SearchRoots::of_process() {
  SearchRoots roots;
  Paths prefixes;
  for (const char* const name : {"CUDA_HOME", "CUDA_PATH"})
    if (!variable(name).empty()) add(roots.toolkits, variable(name));
  for (const char* const name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (!variable(name).empty()) add(prefixes, variable(name));
  for (const fs::path& folder : program_folders()) {
    if (is_there(folder / "nvcc")) add(roots.toolkits, folder.parent_path());
    if (is_there(folder / "python3")) add(prefixes, folder.parent_path());
  }
  for (const char* const usual : {"/usr/local/cuda", "/opt/cuda"}) add(roots.toolkits, usual);
  if (!variable("HOME").empty()) add(prefixes, fs::path(variable("HOME")) / ".local");
  for (const char* const usual : {"/usr/local", "/usr"}) add(prefixes, usual);
  for (const fs::path& prefix : prefixes) add_site_packages(roots.site_packages, prefix);
  return roots;
}

std::vector<std::string> library_candidates(const LibrarySearch& search, const SearchRoots& roots) {
  if (!search.configured.empty()) return {search.configured};
  static constexpr std::array toolkit_folders{"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
  std::vector<std::string> candidates = search.names;
  const auto add_files = [&](const fs::path& folder) {
    for (const std::string& name : search.names)
      if (const fs::path file = folder / name; is_there(file)) candidates.push_back(file.string());
  };
  for (const fs::path& toolkit : roots.toolkits)
    for (const char* const folder : toolkit_folders) add_files(toolkit / folder);
  for (const fs::path& packages : roots.site_packages)
    for (const fs::path& folder : search.wheel_folders) add_files(packages / folder);
  return candidates;
}

}  // namespace cox::detail
