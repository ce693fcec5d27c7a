#pragma once

#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/kernel_key.hpp>

#include <filesystem>
#include <optional>
#include <string>

namespace cox::detail {

/// Compiled kernels on disk, one file for each key. Any number of threads and processes may share a folder: a file
/// appears whole or not at all, and what is not whole is not used. Nothing is ever thrown out: a cache that has become
/// too large is deleted by its owner, at any time.
class KernelCache {
 public:
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// What the settings say; nothing if they switch it off, or if there is no home for it.
  [[nodiscard]] static std::optional<KernelCache> of_process();

  /// Nothing if there is no such entry or it is not as it was written.
  [[nodiscard]] std::optional<CompiledKernel> find(const KernelKey& key) const;
  /// Writes the entry, or replaces it. That it cannot be written is logged as a warning, once in the process.
  void keep(const KernelKey& key, const CompiledKernel& kernel) const noexcept;

  /// The file of the entry.
  [[nodiscard]] std::filesystem::path file_of(const KernelKey& key) const {
    return folder_ / (to_hex(key) + ".kernel");
  }

 private:
  void write(const KernelKey& key, const CompiledKernel& kernel) const;

  std::filesystem::path folder_;
};

/// From the cache, if it may be there and there is one; else compiled, and kept. Throws as compile.
[[nodiscard]] CompiledKernel compile_cached(const Nvrtc& nvrtc, const KernelSource& source,
                                            const std::string& architecture, const KernelKey& key,
                                            const std::optional<KernelCache>& cache);

}  // namespace cox::detail
