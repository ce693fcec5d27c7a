#include <coxswain/servers/cuda/compile/kernel_cache.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/compile/kernel_entry.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <random>
#include <system_error>

namespace cox::detail {
namespace {

namespace fs = std::filesystem;

/// The default folder of the cache; empty if there is none.
fs::path standard_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  // The XDG specification says to ignore relative paths.
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "coxswain" / "kernels";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return fs::path(home) / ".cache" / "coxswain" / "kernels";
  return {};
}

std::optional<std::vector<std::byte>> content_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::vector<std::byte> content;
  std::array<char, 16384> chunk{};
  do {
    stream.read(chunk.data(), chunk.size());  // an error of the file sets badbit, and nothing is thrown
    const auto bytes = std::as_bytes(std::span(chunk).first(static_cast<std::size_t>(stream.gcount())));
    content.insert(content.end(), bytes.begin(), bytes.end());
  } while (stream);
  if (stream.bad() || !stream.eof()) return std::nullopt;
  return content;
}

/// A name that no other thread or process uses. The random number is needed since processes in two containers may have
/// the same id.
fs::path temporary_name(const fs::path& file) {
  static const std::uint64_t process = std::uint64_t{std::random_device()()} << 32U | std::random_device()();
  static std::atomic<std::uint64_t> count{0};
  // Relaxed: only the value matters, no other data is published with it.
  return file.string() + '.' + std::to_string(process) + '.' + std::to_string(::getpid()) + '.' +
         std::to_string(count.fetch_add(1, std::memory_order_relaxed)) + ".part";
}

void warn_once(const std::string& what) noexcept {
  static std::atomic_flag warned;
  // Relaxed: no other data is published with it.
  if (warned.test_and_set(std::memory_order_relaxed)) return;
  try {
    log::write(LogSubsystem::Cuda, LogLevel::Warn,
               [&] { return "compiled kernels are not kept on disk (setting compilation.cache_folder): " + what; });
  } catch (...) {  // no memory for the message; the cache is optional
  }
}

}  // namespace

std::optional<KernelCache> KernelCache::of_process() {
  const Settings settings = cox::settings();
  if (!settings.get<bool>("compilation.cache")) return std::nullopt;
  const std::string given = settings.get<std::string>("compilation.cache_folder");
  fs::path folder = given.empty() ? standard_folder() : fs::path(given);
  if (folder.empty()) return std::nullopt;
  return KernelCache(std::move(folder));
}

std::optional<CompiledKernel> KernelCache::find(const KernelKey& key) const {
  const auto content = content_of(file_of(key));
  return content ? decode_entry(key, *content) : std::nullopt;
}

void KernelCache::keep(const KernelKey& key, const CompiledKernel& kernel) const noexcept {
  try {
    write(key, kernel);
  } catch (const std::exception& error) {
    warn_once(error.what());
  }
}

void KernelCache::write(const KernelKey& key, const CompiledKernel& kernel) const {
  const std::vector<std::byte> content = encode_entry(key, kernel);
  fs::create_directories(folder_);
  const fs::path file = file_of(key);
  const fs::path part = temporary_name(file);
  std::ofstream stream(part, std::ios::binary | std::ios::trunc);
  stream.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
  stream.close();
  std::error_code error;
  if (!stream) error.assign(errno, std::generic_category());
  if (!error) fs::rename(part, file, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(part, ignored);
  throw fs::filesystem_error("cannot write", file, error);
}

CompiledKernel compile_cached(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture,
                              const KernelKey& key, const std::optional<KernelCache>& cache) {
  if (!cache || !is_self_contained(source.options)) return compile(nvrtc, source, architecture);
  if (auto found = cache->find(key)) return std::move(*found);
  CompiledKernel compiled = compile(nvrtc, source, architecture);
  cache->keep(key, compiled);
  return compiled;
}

}  // namespace cox::detail
