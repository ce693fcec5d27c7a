#include <coxswain/servers/cuda/detail/kernel_library.hpp>

#include <coxswain/runtime/launch_error.hpp>
#include <coxswain/servers/cuda/cuda_error.hpp>
#include <coxswain/servers/cuda/detail/cuda_try.hpp>
#include <coxswain/servers/cuda/detail/kernel_cache.hpp>
#include <coxswain/servers/cuda/detail/kernel_image.hpp>
#include <coxswain/servers/cuda/detail/kernel_key.hpp>
#include <coxswain/servers/cuda/detail/made_once.hpp>
#include <coxswain/servers/cuda/detail/nvrtc.hpp>

#include <algorithm>
#include <array>
#include <span>

namespace cox::detail {
namespace {

/// Code in the process, and what the kernel in it is called.
struct KernelLibrary {
  CUlibrary library = nullptr;
  std::string function;  // the lowered name of a name expression; empty: the kernel's own
};

using Libraries = MadeOnce<KernelKey, KernelLibrary>;

Libraries& libraries() {
  static Libraries& all = *new Libraries;  // also there when static objects are destroyed
  return all;
}

std::string first_line(std::span<const char> log) {
  return {log.begin(), std::ranges::find_if(log, [](char c) { return c == '\0' || c == '\n'; })};
}

std::string name_of(ComputeCapability device) {
  return "sm_" + std::to_string(device.major) + std::to_string(device.minor);
}

/// With what the driver's compiler says: PTX is compiled here.
[[noreturn]] void refuse(CUresult result, const char* call, std::span<const char> log, ComputeCapability device,
                         std::source_location site = std::source_location::current()) {
  if (is_sticky(result)) throw_cuda_error(result, call, site);
  const std::string native = describe(result);
  const std::string line = first_line(log);
  const std::string what = result == CUDA_ERROR_NO_BINARY_FOR_GPU
                               ? "the image has no code for a device of " + name_of(device)
                               : "the driver does not take the image";
  throw LaunchError(LaunchError::Kind::Compilation, what + ": " + native + (line.empty() ? "" : ": " + line), site,
                    std::make_exception_ptr(CudaError(CudaError::Kind::Generic, result, native, site)));
}

CUlibrary load(std::span<const std::byte> image, ComputeCapability device) {
  std::array<char, 8192> log{};
  std::array options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  CUlibrary library = nullptr;
  const CUresult result =
      driver().library_load(&library, image.data(), options.data(), values.data(), 2, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) refuse(result, "library_load", log, device);
  return library;
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
    return KernelLibrary{load(compiled.image, device), compiled.lowered_name};
  });
}

KernelLibrary of_image(std::span<const std::byte> image, ComputeCapability device) {
  if (const auto refusal = KernelImage::look_at(image).refusal(device.major, device.minor))
    throw LaunchError(LaunchError::Kind::Compilation, *refusal);
  return libraries().get(key_of(image), [&] { return KernelLibrary{load(image, device), {}}; });
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
  if (result != CUDA_SUCCESS) refuse(result, "library_kernel", {}, device);
  CUfunction function = nullptr;
  result = driver().kernel_function(&function, kernel);
  if (result != CUDA_SUCCESS) refuse(result, "kernel_function", {}, device);
  return function;
}

}  // namespace cox::detail
