#include <coxswain/servers/cuda/kernel/kernel_library.hpp>

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/compile/kernel_cache.hpp>
#include <coxswain/servers/cuda/compile/kernel_image.hpp>
#include <coxswain/servers/cuda/compile/once_map.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/nvrtc.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>

namespace cox::detail {
namespace {

/// The error log of the driver's PTX compiler. The driver may compile, and write here, as late as when a function is
/// loaded.
struct CompilerLog {
  std::array<char, 8192> text{};
  std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{text.data(), reinterpret_cast<void*>(text.size())};

  [[nodiscard]] std::string first_line() const {
    return {text.begin(), std::ranges::find_if(text, [](char c) { return c == '\0' || c == '\n'; })};
  }
};

/// Code that is loaded into the process, and the name of the kernel in it.
struct KernelLibrary {
  CUlibrary library = nullptr;
  std::unique_ptr<CompilerLog> log;  // only for PTX
  std::string function;              // the lowered name of a name expression; empty: use the kernel's name
};

using Libraries = OnceMap<KernelKey, KernelLibrary>;

Libraries& libraries() {
  static Libraries& all = *new Libraries;  // also there when static objects are destroyed
  return all;
}

std::string name_of(ComputeCapability device) {
  return "sm_" + std::to_string(device.major) + std::to_string(device.minor);
}

/// Throws if the driver has refused the code.
void require(CUresult result, const char* call, const KernelLibrary& code, ComputeCapability device,
             std::source_location site = std::source_location::current()) {
  if (result == CUDA_SUCCESS) return;
  if (is_sticky(result)) throw_cuda_error(result, call, site);
  const std::string native = describe(result);
  const std::string line = code.log != nullptr ? code.log->first_line() : "";
  const std::string what = result == CUDA_ERROR_NO_BINARY_FOR_GPU
                               ? "the image has no code for a device of " + name_of(device)
                               : "the driver rejects the image";
  const auto kind =
      result == CUDA_ERROR_OUT_OF_MEMORY ? LaunchError::Kind::OutOfMemory : LaunchError::Kind::Compilation;
  throw LaunchError(kind, what + ": " + native + (line.empty() ? "" : ": " + line), site,
                    std::make_exception_ptr(CudaError(CudaError::Kind::Generic, result, native, site)));
}

KernelLibrary load(std::span<const std::byte> image, std::string function, ComputeCapability device) {
  KernelLibrary loaded{nullptr, nullptr, std::move(function)};
  if (KernelImage::inspect(image).kind == KernelImage::Kind::Ptx) loaded.log = std::make_unique<CompilerLog>();
  CompilerLog* const log = loaded.log.get();
  require(
      driver().library_load(&loaded.library, image.data(), log != nullptr ? log->options.data() : nullptr,
                            log != nullptr ? log->values.data() : nullptr, log != nullptr ? 2 : 0, nullptr, nullptr, 0),
      "library_load", loaded, device);
  return loaded;
}

/// `missing`: the end of the text of the error if there is no such kernel.
CUfunction function_of(const KernelLibrary& code, const std::string& name, ComputeCapability device,
                       const std::string& missing) {
  CUkernel kernel = nullptr;
  const CUresult found = driver().library_kernel(&kernel, code.library, name.c_str());
  if (found == CUDA_ERROR_NOT_FOUND)
    throw LaunchError(LaunchError::Kind::NullFunction, "there is no kernel " + name + missing);
  require(found, "library_kernel", code, device);
  CUfunction function = nullptr;
  require(driver().kernel_function(&function, kernel), "kernel_function", code, device);
  require(driver().function_load(function), "function_load", code, device);
  return function;
}

}  // namespace

CUfunction load_from_source(const KernelSource& source, const std::string& name, ComputeCapability device) {
  const std::string architecture = architecture_name(device.major, device.minor);
  const Nvrtc& compiler = nvrtc();
  const KernelKey key = key_of(compiler, source, architecture);
  const KernelLibrary& code = libraries().get(key, [&] {
    const CompiledKernel compiled = compile_cached(compiler, source, architecture, key, KernelCache::of_process());
    return load(compiled.image, compiled.lowered_name, device);
  });
  return function_of(code, code.function.empty() ? name : code.function, device,
                     " in the source: is it extern \"C\" __global__?");
}

void precompile(const KernelSource& source, const std::string& name, ComputeCapability device) {
  const std::string what = "kernel " + name + " cannot be precompiled: ";
  if (!is_self_contained(source.options))
    throw LaunchError(LaunchError::Kind::Compilation,
                      what + "its options name folders or files, whose contents may change, so it is not cached",
                      std::source_location());
  const std::optional<KernelCache> cache = KernelCache::of_process();
  if (!cache)
    throw Error(what + "there is no cache (settings compilation.cache, compilation.cache_folder)",
                std::source_location());
  const std::string architecture = architecture_name(device.major, device.minor);
  const Nvrtc& compiler = nvrtc();
  const KernelKey key = key_of(compiler, source, architecture);
  if (cache->find(key)) return;
  const CompiledKernel compiled = compile(compiler, source, architecture);
  try {
    cache->write(key, compiled);
  } catch (const std::exception& error) {
    throw Error(what + error.what(), std::source_location(), std::current_exception());
  }
}

CUfunction load_from_image(std::span<const std::byte> image, const std::string& name, ComputeCapability device) {
  if (const auto refusal = KernelImage::inspect(image).refusal(device.major, device.minor))
    throw LaunchError(LaunchError::Kind::Compilation, *refusal);
  const KernelLibrary& code = libraries().get(key_of(image), [&] { return load(image, {}, device); });
  return function_of(code, name, device, " for a device of " + name_of(device) + " in the image");
}

}  // namespace cox::detail
