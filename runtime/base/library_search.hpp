#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cox::detail {

/// Where NVIDIA's libraries may have been put.
struct SearchRoots {
  std::vector<std::filesystem::path> toolkits;       ///< of the CUDA toolkit: /usr/local/cuda
  std::vector<std::filesystem::path> site_packages;  ///< of Python: there are wheels in nvidia/

  /// What the environment (CUDA_HOME, CUDA_PATH, PATH, VIRTUAL_ENV, CONDA_PREFIX, HOME) says, and what is usual. Only
  /// folders that exist. Looks at the disk; runs nothing.
  [[nodiscard]] static SearchRoots of_process();
};

/// A library that is looked for.
struct LibrarySearch {
  std::string configured;                            ///< the file that a setting names; empty: look for it
  std::vector<std::string> names;                    ///< of the file, best first: "libnvrtc.so.13"
  std::vector<std::filesystem::path> wheel_folders;  ///< below site-packages: "nvidia/cu13/lib"
};

/// What to try, in order: the given file alone; else the names for the loader, then those of the files that are there
/// in the toolkits' folders, then in the wheels'.
[[nodiscard]] std::vector<std::string> library_candidates(const LibrarySearch& search, const SearchRoots& roots);

}  // namespace cox::detail
