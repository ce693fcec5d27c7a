#include <coxswain/servers/cuda/compile/kernel_cache.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/driver/nvrtc.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <boost/crc.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <random>
#include <sstream>
#include <string_view>
#include <system_error>

namespace cox::detail {
namespace {

namespace fs = std::filesystem;

using ByteSpan = std::span<const std::byte>;

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// CRC-64 (ECMA-182) of the concatenated bytes.
std::uint64_t checksum_of(std::initializer_list<ByteSpan> parts) noexcept {
  boost::crc_optimal<64, 0x42F0E1EBA9EA3693, 0, 0, false, false> crc;
  for (const ByteSpan part : parts) crc.process_bytes(part.data(), part.size());
  return crc.checksum();
}

// The length comes first, so that no two different sequences of fields have the same text.
void append_field(std::string& text, std::string_view field) {
  text += std::to_string(field.size());
  text += ':';
  text += field;
}

// The layout of an entry.
constexpr std::string_view magic = "COXKERN2";
constexpr std::size_t name_size_offset = 16;
constexpr std::size_t body_offset = 40;
static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

/// The default folder of the cache; empty if there is none.
fs::path standard_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  // The XDG specification says to ignore relative paths.
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "coxswain" / "kernels";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return fs::path(home) / ".cache" / "coxswain" / "kernels";
  return {};
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

KernelKey::KernelKey(std::string text) : checksum_(checksum_of({bytes_of(text)})), text_(std::move(text)) {}

std::string KernelKey::short_name() const { return fmt::format("{:016x}", checksum_); }

KernelKey key_of(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture) {
  std::string text;
  append_field(text, "source");
  append_field(text, std::to_string(nvrtc.version));
  append_field(text, nvrtc.includes_version);
  append_field(text, architecture);
  append_field(text, source.text);
  append_field(text, source.name_expression);
  append_field(text, std::to_string(source.headers.size()));
  for (const CudaHeader& header : source.headers) {
    append_field(text, header.name);
    append_field(text, header.content);
  }
  for (const std::string& option : options_of_kernel(nvrtc, source.options, architecture)) append_field(text, option);
  return KernelKey(std::move(text));
}

KernelKey key_of(std::span<const std::byte> image) {
  std::string text;
  append_field(text, "image");
  append_field(text, {reinterpret_cast<const char*>(image.data()), image.size()});
  return KernelKey(std::move(text));
}

std::vector<std::byte> encode_entry(const KernelKey& key, const CompiledKernel& kernel) {
  const std::array<std::uint64_t, 3> sizes{key.text().size(), kernel.lowered_name.size(), kernel.image.size()};
  const ByteSpan head = bytes_of(magic);
  const ByteSpan numbers = std::as_bytes(std::span(sizes));
  const ByteSpan text = bytes_of(key.text());
  const ByteSpan name = bytes_of(kernel.lowered_name);
  const std::array checksum{checksum_of({head, numbers, text, name, kernel.image})};
  const std::array<ByteSpan, 6> parts{head, numbers, std::as_bytes(std::span(checksum)), text, name, kernel.image};
  std::vector<std::byte> file;
  file.reserve(body_offset + text.size() + name.size() + kernel.image.size());
  for (const ByteSpan part : parts) file.insert(file.end(), part.begin(), part.end());
  return file;
}

std::optional<CompiledKernel> decode_entry(const KernelKey& key, std::span<const std::byte> file) {
  const std::size_t name_offset = body_offset + key.text().size();
  if (file.size() < name_offset) return std::nullopt;
  std::uint64_t name_size = 0;
  std::memcpy(&name_size, file.data() + name_size_offset, sizeof(name_size));
  if (name_size > file.size() - name_offset) return std::nullopt;
  const ByteSpan name = file.subspan(name_offset, name_size);
  const ByteSpan image = file.subspan(name_offset + name_size);
  CompiledKernel kernel{{image.begin(), image.end()}, {reinterpret_cast<const char*>(name.data()), name.size()}};
  if (!std::ranges::equal(file, encode_entry(key, kernel))) return std::nullopt;
  return kernel;
}

std::optional<KernelCache> KernelCache::of_process() {
  const Settings settings = cox::settings();
  if (!settings.get<bool>("compilation.cache")) return std::nullopt;
  const std::string given = settings.get<std::string>("compilation.cache_folder");
  fs::path folder = given.empty() ? standard_folder() : fs::path(given);
  if (folder.empty()) return std::nullopt;
  return KernelCache(std::move(folder));
}

std::optional<CompiledKernel> KernelCache::find(const KernelKey& key) const {
  std::ostringstream content;
  content << std::ifstream(file_of(key), std::ios::binary).rdbuf();  // if it cannot be read, the end is missing
  return decode_entry(key, bytes_of(content.view()));
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

void KernelCache::keep(const KernelKey& key, const CompiledKernel& kernel) const noexcept try {
  write(key, kernel);
} catch (const std::exception& error) {
  warn_once(error.what());
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
