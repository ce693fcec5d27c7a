#include <coxswain/tests/servers/cuda/compiler.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/compile/kernel_cache.hpp>

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

using namespace cox::detail;
using cox::test::compiler;
using cox::test::scale_source;
using cox::test::TemporaryFolder;
using cox::test::Variable;

namespace fs = std::filesystem;

namespace {

KernelKey key(std::string_view text) { return key_of(std::as_bytes(std::span(text))); }

CompiledKernel some_kernel(std::size_t size = 1000) {
  CompiledKernel kernel{std::vector<std::byte>(size), "_Z5scalePf"};
  for (std::size_t i = 0; i < size; ++i) kernel.image[i] = static_cast<std::byte>(i * 7 + 1);
  return kernel;
}

bool same(const std::optional<CompiledKernel>& found, const CompiledKernel& kernel) {
  return found && found->image == kernel.image && found->lowered_name == kernel.lowered_name;
}

std::string content(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void overwrite(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

std::size_t file_count(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("A kernel that was kept is found under its key, also with no name and no bytes") {
  const TemporaryFolder folder;
  const KernelCache cache(folder.path() / "a" / "b");
  CHECK_FALSE(cache.find(key("1")));
  cache.keep(key("1"), some_kernel());
  cache.keep(key("2"), {});
  CHECK(same(cache.find(key("1")), some_kernel()));
  CHECK(same(cache.find(key("2")), {}));
  CHECK_FALSE(cache.find(key("3")));
  CHECK(file_count(folder.path() / "a" / "b") == 2);
}

TEST_CASE("An entry is not used if any byte of it is another, missing or too many, or if it is that of another key") {
  const std::vector<std::byte> good = encode_entry(key("1"), some_kernel(40));
  CHECK(same(decode_entry(key("1"), good), some_kernel(40)));
  CHECK_FALSE(decode_entry(key("2"), good));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    CHECK_FALSE(decode_entry(key("1"), bad));
    CHECK_FALSE(decode_entry(key("1"), std::span(good).first(i)));
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode_entry(key("1"), longer));
}

TEST_CASE("An entry has the bytes and the file name that earlier releases have given it") {
  using namespace std::string_view_literals;
  constexpr std::string_view expected =
      "COXKERN2"
      "\x0a\0\0\0\0\0\0\0"
      "\x01\0\0\0\0\0\0\0"
      "\x03\0\0\0\0\0\0\0"
      "\xe3\x83\x63\x17\x69\x80\x55\x9d"
      "5:image1:1"
      "f"
      "\x01\x02\x03"sv;
  const std::vector<std::byte> entry = encode_entry(key("1"), {{std::byte{1}, std::byte{2}, std::byte{3}}, "f"});
  CHECK(std::string_view(reinterpret_cast<const char*>(entry.data()), entry.size()) == expected);
  CHECK(key("1").short_name() == "8d0ccf0d3de80156");
}

TEST_CASE("A damaged, truncated or foreign file of the cache is compiled anew and replaced") {
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  const TemporaryFolder folder;
  const std::optional<KernelCache> cache(folder.path());
  const KernelSource source{scale_source, "", {}, {}};
  const KernelKey kernel_key = key_of(*nvrtc, source, "sm_80");
  const auto ask = [&] { return compile_cached(*nvrtc, source, "sm_80", kernel_key, cache); };
  const CompiledKernel compiled = ask();
  const fs::path file = cache->file_of(kernel_key);
  const std::string good = content(file);
  REQUIRE_FALSE(good.empty());
  std::string damaged = good;
  damaged[good.size() / 2] = static_cast<char>(damaged[good.size() / 2] ^ 1);
  for (const std::string& bad : {damaged, good.substr(0, good.size() / 2), std::string(), std::string("hello")}) {
    overwrite(file, bad);
    CHECK(same(ask(), compiled));
    CHECK(content(file) == good);
  }
}

TEST_CASE("An entry that cannot be read is none") {
  const TemporaryFolder folder;
  const KernelCache cache(folder.path());
  fs::create_directory(cache.file_of(key("1")));  // it can be opened, and reading it is an error
  CHECK_FALSE(cache.find(key("1")));
}

// Processes in two containers may have one id and one cache.
TEST_CASE("An entry is written whatever other processes of the same id write there") {
  const TemporaryFolder folder;
  const KernelCache cache(folder.path());
  for (int count = 0; count < 1000; ++count)
    fs::create_directory(cache.file_of(key("1")).string() + '.' + std::to_string(::getpid()) + '.' +
                         std::to_string(count) + ".part");
  cache.keep(key("1"), some_kernel());
  CHECK(same(cache.find(key("1")), some_kernel()));
}

TEST_CASE("What is in the cache is not compiled, except where the options name folders") {
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  const TemporaryFolder folder;
  const std::optional<KernelCache> cache(folder.path());
  KernelSource source{"this does not compile", "", {}, {}};
  const auto ask = [&] { return compile_cached(*nvrtc, source, "sm_80", key_of(*nvrtc, source, "sm_80"), cache); };
  CHECK_THROWS(ask());
  CHECK(file_count(folder.path()) == 0);  // failures are not kept
  cache->keep(key_of(*nvrtc, source, "sm_80"), some_kernel());
  CHECK(same(ask(), some_kernel()));
  source.options = {"-I/nowhere"};
  cache->keep(key_of(*nvrtc, source, "sm_80"), some_kernel());
  CHECK_THROWS(ask());
  CHECK_THROWS(compile_cached(*nvrtc, source, "sm_80", key_of(*nvrtc, source, "sm_80"), std::nullopt));
}

TEST_CASE("The key of a kernel is another wherever the result may be") {
  Nvrtc some;
  some.version = 13000;
  const KernelSource source{"text", "", {{"a", "b"}}, {"-DX"}};
  const KernelKey base = key_of(some, source, "sm_80");
  CHECK(base == key_of(some, source, "sm_80"));
  CHECK(base != key_of(some, source, "sm_90a"));
  for (const KernelSource& other :
       {KernelSource{"text2", "", {{"a", "b"}}, {"-DX"}}, KernelSource{"text", "f", {{"a", "b"}}, {"-DX"}},
        KernelSource{"text", "", {{"a", "c"}}, {"-DX"}}, KernelSource{"text", "", {{"ab", ""}}, {"-DX"}},
        KernelSource{"text", "", {}, {"-DX"}}, KernelSource{"text", "", {{"a", "b"}}, {"-DY"}},
        KernelSource{"text", "", {{"a", "b"}}, {"-DX", "-DY"}}})
    CHECK(base != key_of(some, other, "sm_80"));
  Nvrtc newer = some;
  newer.version = 13010;
  CHECK(base != key_of(newer, source, "sm_80"));
  Nvrtc elsewhere = some;
  elsewhere.includes_version = "7";
  CHECK(base != key_of(elsewhere, source, "sm_80"));
  Nvrtc moved = some;
  moved.includes = {"/another/place/include"};  // the same headers: a cache may be used on another machine
  CHECK(base == key_of(moved, source, "sm_80"));
}

TEST_CASE("Writers and readers of one entry at the same time see it whole or not at all") {
  const TemporaryFolder folder;
  const KernelCache cache(folder.path());
  std::atomic<int> wrong{0};
  std::atomic<bool> done{false};
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < 2; ++i)
      readers.emplace_back([&] {
        while (!done)
          if (const auto found = cache.find(key("1")); found && !same(found, some_kernel(100'000))) ++wrong;
      });
    {
      std::vector<std::jthread> writers;
      for (int i = 0; i < 4; ++i)
        writers.emplace_back([&] {
          for (int round = 0; round < 20; ++round) cache.keep(key("1"), some_kernel(100'000));
        });
    }
    done = true;
  }
  CHECK(wrong == 0);
  CHECK(same(cache.find(key("1")), some_kernel(100'000)));
  CHECK(file_count(folder.path()) == 1);
}

TEST_CASE("A folder that cannot be written is logged once, and kernels are compiled without it") {
  const TemporaryFolder folder;
  const KernelCache cache(folder.make_file("file") / "kernels");
  std::atomic<int> warnings{0};
  cox::LogOptions options;
  options.to_stderr = false;
  options.callback = [&](cox::LogSubsystem subsystem, cox::LogLevel level, std::string_view text) {
    if (subsystem == cox::LogSubsystem::Cuda && level == cox::LogLevel::Warn &&
        text.find("compilation.cache_folder") != std::string_view::npos)
      ++warnings;
  };
  cox::log::start(options);
  for (int i = 0; i < 3; ++i) cache.keep(key("1"), some_kernel());
  cox::log::stop();
  CHECK(warnings == 1);
  CHECK_FALSE(cache.find(key("1")));
}

TEST_CASE("The cache is where the settings say, else in the user's cache folder") {
  const auto file = [] {
    const auto cache = KernelCache::of_process();
    return cache ? cache->file_of(key("1")).parent_path().string() : "none";
  };
  {
    const Variable home("XDG_CACHE_HOME", "/caches");
    CHECK(file() == "/caches/coxswain/kernels");
    const Variable folder("COX_COMPILATION_CACHE_FOLDER", "/mine");
    CHECK(file() == "/mine");
    const Variable off("COX_COMPILATION_CACHE", "off");
    CHECK(file() == "none");
  }
  {
    const Variable relative("XDG_CACHE_HOME", "caches");  // the standard says: to be ignored
    CHECK_THAT(file(), Catch::Matchers::EndsWith("/.cache/coxswain/kernels") || Catch::Matchers::Equals("none"));
  }
}
