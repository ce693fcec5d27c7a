#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/cuda/compiler.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/kernel_image.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>

#include <algorithm>
#include <string>

using cox::CudaError;
using cox::LaunchError;
using cox::detail::all_options;
using cox::detail::architecture_name;
using cox::detail::compile;
using cox::detail::CompiledKernel;
using cox::detail::is_self_contained;
using cox::detail::KernelImage;
using cox::detail::KernelSource;
using cox::detail::Nvrtc;
using cox::test::compiler;
using cox::test::mentions;
using cox::test::message_of;
using cox::test::scale_source;

namespace {

bool contains(const std::vector<std::string>& options, const std::string& option) {
  return std::ranges::find(options, option) != options.end();
}

}  // namespace

TEST_CASE("An architecture from 9.0 on is compiled for with all that it has") {
  CHECK(architecture_name(8, 0) == "sm_80");
  CHECK(architecture_name(9, 0) == "sm_90a");
  CHECK(architecture_name(10, 3) == "sm_103a");
}

TEST_CASE("Options of the caller stand in for ours of the same meaning") {
  Nvrtc some;
  some.version = 13000;
  some.includes = {"/inc", "/inc/cccl"};
  const auto ours = all_options(some, {}, "sm_90a");
  CHECK(ours == std::vector<std::string>{"--gpu-architecture=sm_90a", "--std=c++20", "--generate-line-info",
                                         "--device-as-default-execution-space", "--no-source-include",
                                         "--include-path=/inc", "--include-path=/inc/cccl"});
  const auto theirs = all_options(some, {"-std=c++17", "-arch=compute_90", "-lineinfo", "-DX=1"}, "sm_90a");
  CHECK(theirs == std::vector<std::string>{"--device-as-default-execution-space", "--no-source-include", "-std=c++17",
                                           "-arch=compute_90", "-lineinfo", "-DX=1", "--include-path=/inc",
                                           "--include-path=/inc/cccl"});
  some.version = 12000;
  CHECK_FALSE(contains(all_options(some, {}, "sm_80"), "--no-source-include"));
}

TEST_CASE("Options that name folders or files make a kernel depend on them") {
  CHECK(is_self_contained({"-DX=1", "--std=c++17", "--maxrregcount=32"}));
  for (const char* const option : {"-I/some", "--include-path=/some", "-include=a.h", "--pre-include=a.h", "-pch"})
    CHECK_FALSE(is_self_contained({"-DX=1", option}));
}

TEST_CASE("Source becomes a cubin of the architecture, without a device") {
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  for (const auto& [name, architecture] : {std::pair{"sm_80", 80}, std::pair{"sm_90a", 90}}) {
    const CompiledKernel compiled = compile(*nvrtc, {scale_source, "", {}, {}}, name);
    const KernelImage image = KernelImage::inspect(compiled.image);
    CHECK(image.kind == KernelImage::Kind::Cubin);
    CHECK(image.architecture == architecture);
    CHECK(compiled.lowered_name.empty());
  }
}

TEST_CASE("Source becomes PTX if the options ask for a virtual architecture") {
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  const CompiledKernel compiled = compile(*nvrtc, {scale_source, "", {}, {"-arch=compute_80"}}, "sm_90a");
  CHECK(KernelImage::inspect(compiled.image).kind == KernelImage::Kind::Ptx);
  CHECK(compiled.image.back() == std::byte{0});
}

TEST_CASE("A name expression is instantiated and lowered") {
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  const KernelSource source{
      "namespace my { template <class T> __global__ void fill(T* y) { *y = T(1); } }", "my::fill<double>", {}, {}};
  CHECK(compile(*nvrtc, source, "sm_80").lowered_name == "_ZN2my4fillIdEEvPT_");
}

TEST_CASE("Headers come from the kernel's options and from the toolkit, and are C++20") {
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  const std::string text =
      "#include <mine.h>\n"
      "template <class T> concept Number = requires(T t) { t + t; };\n"
      "extern \"C\" __global__ void k(int* y) { static_assert(Number<int>); *y = MINE; }\n";
  CHECK_NOTHROW(compile(*nvrtc, {text, "", {{"mine.h", "#define MINE 7\n"}}, {}}, "sm_80"));
  if (nvrtc->includes.empty()) {
    WARN("skipped: there are no headers of the CUDA toolkit");
    return;
  }
  CHECK_NOTHROW(compile(
      *nvrtc,
      {"#include <cuda_fp16.h>\n#include <cuda/std/cstdint>\n" + text, "", {{"mine.h", "#define MINE 7\n"}}, {}},
      "sm_90a"));
}

TEST_CASE("Source that does not compile is refused with the log and the lines that it names") {
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  const KernelSource source{"extern \"C\" __global__ void k(int* y) {\n  int a = 1;\n  *y = a + foo;\n}\n", "", {}, {}};
  try {
    static_cast<void>(compile(*nvrtc, source, "sm_80"));
    FAIL("it compiles");
  } catch (const LaunchError& error) {
    CHECK(error.kind() == LaunchError::Kind::Compilation);
    CHECK(mentions(error.what(), {"[Compilation Error]\n kernel.cu(3): error: identifier \"foo\" is undefined\n",
                                  "[Source]\n", "\n>     3 |   *y = a + foo;\n"}));
    CHECK_THROWS_AS(std::rethrow_exception(error.cause()), CudaError);
  }
}

TEST_CASE("An option or architecture that NVRTC does not know is refused with what it says") {
  const Nvrtc* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  CHECK_THAT(message_of([&] { (void)compile(*nvrtc, {scale_source, "", {}, {"--no-such-option"}}, "sm_80"); }),
             Catch::Matchers::ContainsSubstring("[Compilation Error]\n") &&
                 Catch::Matchers::ContainsSubstring("no-such-option"));
  CHECK_THAT(message_of([&] { (void)compile(*nvrtc, {scale_source, "", {}, {}}, "sm_20"); }),
             Catch::Matchers::ContainsSubstring("gpu-architecture"));
}
