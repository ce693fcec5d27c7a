#pragma once

#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/kernel_key.hpp>

#include <filesystem>
#include <optional>
#include <string>

namespace cox::detail {

/// Compiled kernels on disk, one file for each key. Any number of threads and processes may share a folder: files are
/// written atomically, and an incomplete file is ignored. Entries are never evicted: the user of a cache that has
/// become too large may delete it at any time.
class KernelCache {
 public:
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The cache that the settings describe; std::nullopt if they disable it, or there is no folder for it.
  [[nodiscard]] static std::optional<KernelCache> of_process();

  /// std::nullopt if there is no such entry, or it is damaged.
  [[nodiscard]] std::optional<CompiledKernel> find(const KernelKey& key) const;
  /// Writes the entry, or replaces it. If it cannot be written, a warning is logged, once in the process.
  void keep(const KernelKey& key, const CompiledKernel& kernel) const noexcept;

  /// The file of the entry.
  [[nodiscard]] std::filesystem::path file_of(const KernelKey& key) const {
    return folder_ / (key.short_name() + ".kernel");
  }

 private:
  void write(const KernelKey& key, const CompiledKernel& kernel) const;

  std::filesystem::path folder_;
};

/// Returns the kernel from the cache, or compiles it and writes it to the cache. Without a cache, or if the options are
/// not self-contained, only compiles it. Throws as compile() does.
[[nodiscard]] CompiledKernel compile_cached(const Nvrtc& nvrtc, const KernelSource& source,
                                            const std::string& architecture, const KernelKey& key,
                                            const std::optional<KernelCache>& cache);

}  // namespace cox::detail
