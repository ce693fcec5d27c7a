#include <coxswain/servers/cuda/kernel/kernel_library.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/compile/kernel_cache.hpp>
#include <coxswain/servers/cuda/compile/kernel_image.hpp>
#include <coxswain/servers/cuda/compile/kernel_key.hpp>
#include <coxswain/servers/cuda/compile/once_map.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/nvrtc.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

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
  std::shared_ptr<CompilerLog> log;  // only for PTX
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

[[noreturn]] void refuse(CUresult result, const char* call, const CompilerLog* log, ComputeCapability device,
                         std::source_location site = std::source_location::current()) {
  if (is_sticky(result)) throw_cuda_error(result, call, site);
  const std::string native = describe(result);
  const std::string line = log != nullptr ? log->first_line() : "";
  const std::string what = result == CUDA_ERROR_NO_BINARY_FOR_GPU
                               ? "the image has no code for a device of " + name_of(device)
                               : "the driver does not take the image";
  const auto kind =
      result == CUDA_ERROR_OUT_OF_MEMORY ? LaunchError::Kind::OutOfMemory : LaunchError::Kind::Compilation;
  throw LaunchError(kind, what + ": " + native + (line.empty() ? "" : ": " + line), site,
                    std::make_exception_ptr(CudaError(CudaError::Kind::Generic, result, native, site)));
}

KernelLibrary load(std::span<const std::byte> image, std::string function, ComputeCapability device) {
  KernelLibrary loaded{nullptr, nullptr, std::move(function)};
  if (KernelImage::inspect(image).kind == KernelImage::Kind::Ptx) loaded.log = std::make_shared<CompilerLog>();
  CompilerLog* const log = loaded.log.get();
  const CUresult result =
      driver().library_load(&loaded.library, image.data(), log != nullptr ? log->options.data() : nullptr,
                            log != nullptr ? log->values.data() : nullptr, log != nullptr ? 2 : 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) refuse(result, "library_load", log, device);
  return loaded;
}

KernelLibrary of_source(const KernelDefinition& definition, const std::string& text, ComputeCapability device) {
  const CudaKernelOptions& options = definition.options();
  const KernelSource source{text, options.name_expression ? definition.name() : "", options.headers,
                            options.compile_options};
  const std::string architecture = architecture_name(device.major, device.minor);
  const Nvrtc& compiler = nvrtc();
  const KernelKey key = key_of(compiler, source, architecture);
  return libraries().get(key, [&] {
    const CompiledKernel compiled = compile_cached(compiler, source, architecture, key, KernelCache::of_process());
    return load(compiled.image, compiled.lowered_name, device);
  });
}

KernelLibrary of_image(std::span<const std::byte> image, ComputeCapability device) {
  if (const auto refusal = KernelImage::inspect(image).refusal(device.major, device.minor))
    throw LaunchError(LaunchError::Kind::Compilation, *refusal);
  return libraries().get(key_of(image), [&] { return load(image, {}, device); });
}

KernelLibrary library_of(const KernelDefinition& definition, ComputeCapability device) {
  if (const auto* const source = std::get_if<KernelDefinition::Source>(&definition.origin()))
    return of_source(definition, source->text, device);
  return of_image(std::get<KernelDefinition::Image>(definition.origin()).bytes, device);
}

}  // namespace

CUfunction function_of(const KernelDefinition& definition, ComputeCapability device) {
  const KernelLibrary found = library_of(definition, device);
  const std::string& name = found.function.empty() ? definition.name() : found.function;
  CUkernel kernel = nullptr;
  CUresult result = driver().library_kernel(&kernel, found.library, name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND)
    throw LaunchError(LaunchError::Kind::NullFunction,
                      std::holds_alternative<KernelDefinition::Source>(definition.origin())
                          ? "there is no kernel " + name + " in the source: is it extern \"C\" __global__?"
                          : "there is no kernel " + name + " for a device of " + name_of(device) + " in the image");
  const CompilerLog* const log = found.log.get();
  if (result != CUDA_SUCCESS) refuse(result, "library_kernel", log, device);
  CUfunction function = nullptr;
  result = driver().kernel_function(&function, kernel);
  if (result != CUDA_SUCCESS) refuse(result, "kernel_function", log, device);
  result = driver().function_load(function);
  if (result != CUDA_SUCCESS) refuse(result, "function_load", log, device);
  return function;
}

}  // namespace cox::detail
