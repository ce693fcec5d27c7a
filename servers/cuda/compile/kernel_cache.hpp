#pragma once

#include <coxswain/servers/cuda/compile/compile.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox::detail {

/// Everything that the result of compiling a kernel depends on: source, headers, options, architecture, NVRTC, the
/// toolkit's headers; or a ready-made image. Two keys are equal if all of that is equal.
class KernelKey {
 public:
  /// Throws std::bad_alloc.
  explicit KernelKey(std::string text);

  /// The full key.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// A file name for the key, of 16 hexadecimal digits. Different keys may have the same: compare the text, too.
  [[nodiscard]] std::string short_name() const;

  /// Some total order, for maps.
  friend auto operator<=>(const KernelKey&, const KernelKey&) = default;

 private:
  std::uint64_t checksum_;  // first: decides most comparisons
  std::string text_;
};

[[nodiscard]] KernelKey key_of(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture);
/// The key of a ready-made image, which it has a copy of.
[[nodiscard]] KernelKey key_of(std::span<const std::byte> image);

/// A compiled kernel as one file of the cache:
///
///     "COXKERN" and a format version   8 bytes
///     sizes of key, name, image        8 bytes each, little-endian, as is the next
///     checksum of all the rest         8 bytes; detects damage, not forgery
///     full key, lowered name, image
[[nodiscard]] std::vector<std::byte> encode_entry(const KernelKey& key, const CompiledKernel& kernel);
/// std::nullopt unless `file` is, byte for byte, what encode_entry() made for that key.
[[nodiscard]] std::optional<CompiledKernel> decode_entry(const KernelKey& key, std::span<const std::byte> file);

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
  /// Writes the entry, or replaces it. Throws std::filesystem::filesystem_error, std::bad_alloc.
  void write(const KernelKey& key, const CompiledKernel& kernel) const;
  /// As above, but if the entry cannot be written, a warning is logged, once in the process.
  void keep(const KernelKey& key, const CompiledKernel& kernel) const noexcept;

  /// The file of the entry.
  [[nodiscard]] std::filesystem::path file_of(const KernelKey& key) const {
    return folder_ / (key.short_name() + ".kernel");
  }

 private:
  std::filesystem::path folder_;
};

/// Returns the kernel from the cache, or compiles it and writes it to the cache. Without a cache, or if the options are
/// not self-contained, only compiles it. Throws as compile() does.
[[nodiscard]] CompiledKernel compile_cached(const Nvrtc& nvrtc, const KernelSource& source,
                                            const std::string& architecture, const KernelKey& key,
                                            const std::optional<KernelCache>& cache);

}  // namespace cox::detail
