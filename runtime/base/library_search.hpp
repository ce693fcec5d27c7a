#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cox::detail {

/// Folders in which NVIDIA's libraries may be installed.
struct SearchRoots {
  std::vector<std::filesystem::path> toolkits;       ///< CUDA toolkits: /usr/local/cuda
  std::vector<std::filesystem::path> site_packages;  ///< Python packages; wheels of NVIDIA are in nvidia/

  /// Returns the folders that the environment (CUDA_HOME, CUDA_PATH, PATH, VIRTUAL_ENV, CONDA_PREFIX, HOME) names and
  /// the usual ones, where they exist. Reads the file system; starts no program.
  [[nodiscard]] static SearchRoots of_process();
};

/// A library to search for.
struct LibrarySearch {
  std::string configured;                            ///< file named by a setting; empty: search for the library
  std::vector<std::string> names;                    ///< file names in order of preference: "libnvrtc.so.13"
  std::vector<std::filesystem::path> wheel_folders;  ///< folders below site-packages: "nvidia/cu13/lib"
};

/// Returns the files to try, in order. If `configured` is set, that file only. Otherwise the bare names, for which the
/// loader searches, then the existing files in the folders of the toolkits, then those in the folders of the wheels.
[[nodiscard]] std::vector<std::string> library_candidates(const LibrarySearch& search, const SearchRoots& roots);

}  // namespace cox::detail
