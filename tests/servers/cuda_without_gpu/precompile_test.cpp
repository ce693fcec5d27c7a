// Kernels that are compiled without a device, and then loaded from the cache, over a stand-in for the driver. NVRTC is
// the real one where it is there.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>

#include <coxswain/runtime/base/library_search.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/compile/kernel_cache.hpp>
#include <coxswain/servers/cuda/compile/kernel_image.hpp>
#include <coxswain/servers/cuda/driver/nvrtc.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace fs = std::filesystem;

namespace {

constexpr const char* source = R"(
template <class T>
__global__ void twice(T* x, unsigned number) {
  x[threadIdx.x] *= 2;
}
)";

CudaKernel twice(CudaKernelOptions options = {}) {
  options.name_expression = true;
  options.parameters = {{KernelParameter::buffer(), KernelParameter::scalar(4)}};
  return CudaKernel::from_source("twice<float>", CubeDim::single(), source, std::move(options));
}

/// A cache in a folder of its own, and NVRTC itself where there is one and the process has not opened the stand-in.
class Cache {
 public:
  Cache() {
    const detail::LibrarySearch search{
        "", {"libnvrtc.so.13", "libnvrtc.so.12"}, {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}};
    if (detail::open_nvrtc(detail::library_candidates(search, detail::SearchRoots::of_process()), "").nvrtc != nullptr)
      set_settings({{"compilation.nvrtc", std::string()}});
    set_settings({{"compilation.cache", true}, {"compilation.cache_folder", folder.path().string()}});
  }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache() { set_settings({{"compilation.cache", false}}); }

  [[nodiscard]] std::vector<fs::path> files() const {
    return {fs::directory_iterator(folder.path()), fs::directory_iterator()};
  }
  [[nodiscard]] static bool has_compiler() { return detail::nvrtc().version < 99000; }

  TemporaryFolder folder;
};

detail::KernelKey key_for(const char* architecture) {
  return detail::key_of(detail::nvrtc(), {source, "twice<float>", {}, {}}, architecture);
}

}  // namespace

TEST_CASE("The version of NVRTC's headers is another one with another CCCL, wherever a toolkit has it") {
  const auto version_with = [](const char* folder_of_cccl, const char* version) {
    const TemporaryFolder toolkit;
    const auto write = [](const fs::path& file, const char* content) {
      fs::create_directories(file.parent_path());
      std::ofstream(file) << content;
    };
    const fs::path library = toolkit.path() / "lib" / "libnvrtc.so";
    const fs::path include = toolkit.path() / "include";
    fs::create_directories(library.parent_path());
    fs::copy_file(COX_FAKE_NVRTC, library);
    write(include / "cuda_fp16.h", "1");
    write(include / folder_of_cccl / "cuda" / "std" / "__cccl" / "version.h", version);
    const detail::FoundNvrtc found = detail::open_nvrtc({library.string()}, "");
    REQUIRE(found.nvrtc != nullptr);
    REQUIRE(found.nvrtc->includes.front() == include);
    return found.nvrtc->includes_version;
  };
  CHECK(version_with("", "2008000") == version_with("", "2008000"));
  CHECK(version_with("", "2008000") != version_with("", "2008001"));
  CHECK(version_with("cccl", "3000000") != version_with("cccl", "3000001"));
}

TEST_CASE("A kernel is compiled without a device, and a device that is opened later takes it from the cache") {
  FakeGpus gpus;
  const Cache cache;
  twice().precompile({{8, 0}, {9, 0}});
  CHECK(cache.files().size() == 2);
  const detail::KernelCache entries(cache.folder.path());
  const auto compiled = entries.find(key_for("sm_90a"));
  REQUIRE(compiled);
  REQUIRE(entries.find(key_for("sm_80")));
  if (Cache::has_compiler()) {
    const auto image = detail::KernelImage::inspect(compiled->image);
    CHECK(image.kind == detail::KernelImage::Kind::Cubin);
    CHECK(image.architecture == 90);
  }

  // The stand-in driver has no kernel of the compiled name: only the entry, as changed here, leads to one that it has.
  entries.write(key_for("sm_90a"), {compiled->image, "append"});
  twice().precompile({{9, 0}});  // it is there
  CHECK(entries.find(key_for("sm_90a"))->lowered_name == "append");
  const CudaClient client = gpus.client();
  const Handle buffer = client.empty(4);
  client.launch(twice(), CubeCount::single(), KernelArguments{}.with_buffer(buffer).with_scalar(7U));
  client.sync().get();
  CHECK(gpus.appended() == std::vector<std::uint32_t>{7});
}

TEST_CASE("What cannot be precompiled says why") {
  FakeGpus gpus;
  const Cache cache;
  const auto kind_of_failure = [](const CudaKernel& kernel) {
    return kind_of<LaunchError>([&] { kernel.precompile({{9, 0}}); });
  };
  CHECK(kind_of_failure(twice({.compile_options = {"-I/nowhere"}})) == LaunchError::Kind::Compilation);
  if (Cache::has_compiler()) {
    CHECK(kind_of_failure(CudaKernel::from_source("f", CubeDim::single(), "no C++")) == LaunchError::Kind::Compilation);
    CHECK(kind_of<LaunchError>([] { twice().precompile({{1, 7}}); }) == LaunchError::Kind::Compilation);
  }
  const std::string image = ".version 8.0";
  CHECK_NOTHROW(CudaKernel::from_image("f", CubeDim::single(), std::as_bytes(std::span(image))).precompile({{9, 0}}));
  CHECK(cache.files().empty());

  const fs::path file = cache.folder.path() / "file";  // not a folder
  std::ofstream(file) << "x";
  set_settings({{"compilation.cache_folder", (file / "folder").string()}});
  CHECK(mentions(message_of([] { twice().precompile({{9, 0}}); }), {"twice<float> cannot be precompiled", "file"}));
  set_settings({{"compilation.cache", false}});
  CHECK(mentions(message_of([] { twice().precompile({{9, 0}}); }), {"compilation.cache"}));
}
