#pragma once

#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/sha256.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace cox::detail {

/// Of all that decides what comes of compiling a kernel: source, headers, options, architecture, NVRTC, the toolkit's
/// headers.
using KernelKey = Sha256::Digest;

[[nodiscard]] KernelKey key_of(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture);
/// Of an image that is there already.
[[nodiscard]] KernelKey key_of(std::span<const std::byte> image);

}  // namespace cox::detail
