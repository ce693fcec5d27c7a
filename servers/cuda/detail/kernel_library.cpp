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

using Libraries = MadeOnce<KernelKey, KernelLibrary>;

Libraries& libraries() {
  static Libraries& all = *new Libraries;  // also there when static objects are destroyed
  return all;
}

std::string first_line(std::span<const char> log) {
  return {log.begin(), std::ranges::find_if(log, [](char c) { return c == '\0' || c == '\n'; })};
}

/// With what the driver's compiler says: PTX is compiled here.
[[noreturn]] void refuse(CUresult result, std::span<const char> log, std::source_location site) {
  if (is_sticky(result)) throw_cuda_error(result, "cuLibraryLoadData", site);
  const std::string native = describe(result);
  const std::string line = first_line(log);
  throw LaunchError(LaunchError::Kind::Compilation,
                    "the driver does not take the image: " + native + (line.empty() ? "" : ": " + line), site,
                    std::make_exception_ptr(CudaError(CudaError::Kind::Generic, result, native, site)));
}

CUlibrary load(std::span<const std::byte> image) {
  std::array<char, 8192> log{};
  std::array options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  CUlibrary library = nullptr;
  const CUresult result =
      driver().library_load(&library, image.data(), options.data(), values.data(), 2, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) refuse(result, log, std::source_location::current());
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
    return KernelLibrary{load(compiled.image), compiled.lowered_name};
  });
}

KernelLibrary of_image(std::span<const std::byte> image, ComputeCapability device) {
  if (const auto refusal = KernelImage::look_at(image).refusal(device.major, device.minor))
    throw LaunchError(LaunchError::Kind::Compilation, *refusal);
  return libraries().get(key_of(image), [&] { return KernelLibrary{load(image), {}}; });
}

}  // namespace

KernelLibrary library_of(const KernelDefinition& definition, ComputeCapability device) {
  if (const auto* const source = std::get_if<KernelDefinition::Source>(&definition.origin()))
    return of_source(definition, source->text, device);
  return of_image(std::get<KernelDefinition::Image>(definition.origin()).bytes, device);
}

}  // namespace cox::detail
