#pragma once

#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/kernel_key.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace cox::detail {

/// A compiled kernel as one file of the cache:
///
///     "COXKERN" and a format version   8 bytes
///     sizes of key, name, image        8 bytes each, little-endian, as is the next
///     checksum of all the rest         8 bytes
///     full key, lowered name, image
[[nodiscard]] std::vector<std::byte> encode_entry(const KernelKey& key, const CompiledKernel& kernel);

/// std::nullopt unless `file` is, byte for byte, what encode_entry() made for that key.
[[nodiscard]] std::optional<CompiledKernel> decode_entry(const KernelKey& key, std::span<const std::byte> file);

}  // namespace cox::detail
