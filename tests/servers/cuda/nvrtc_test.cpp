#include <coxswain/tests/servers/cuda/compiler.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>

#include <string>

using cox::CudaError;
using cox::LaunchError;
using cox::detail::FoundNvrtc;
using cox::detail::open_nvrtc;
using cox::test::compiler;
using cox::test::TemporaryFolder;

namespace {

bool is_one_line(const std::string& text) { return !text.empty() && text.find('\n') == std::string::npos; }

}  // namespace

TEST_CASE("That there is no NVRTC is said in one line") {
  const FoundNvrtc found = open_nvrtc({"/nowhere/libnvrtc.so.13"}, "libnvrtc.so.13 or libnvrtc.so.12");
  CHECK(found.nvrtc == nullptr);
  CHECK(is_one_line(found.error));
  CHECK_THAT(found.error, Catch::Matchers::ContainsSubstring("libnvrtc.so.13 or libnvrtc.so.12") &&
                              Catch::Matchers::ContainsSubstring("compilation.nvrtc"));
}

TEST_CASE("A library that is not NVRTC is refused with what it lacks") {
  const FoundNvrtc found = open_nvrtc({"libc.so.6"}, "libc.so.6");
  CHECK(found.nvrtc == nullptr);
  CHECK(is_one_line(found.error));
  CHECK_THAT(found.error, Catch::Matchers::ContainsSubstring("libc.so.6 has no nvrtc"));
}

TEST_CASE("The first NVRTC that can be opened is the one, with its version") {
  const auto* const nvrtc = compiler();
  if (nvrtc == nullptr) return;
  CHECK(nvrtc->version >= 12000);
  CHECK(&cox::detail::nvrtc() == nvrtc);
}

// The process finds NVRTC once: in a process of its own this one finds what the setting names.
TEST_CASE("A kernel without NVRTC is a LaunchError Compilation, and its cause says what is unsupported") {
  const cox::test::Variable setting("COX_COMPILATION_NVRTC", "/nowhere/libnvrtc.so");
  if (cox::detail::find_nvrtc().nvrtc != nullptr) return;  // another test of this process was first
  try {
    static_cast<void>(cox::detail::nvrtc());
    FAIL("there is one");
  } catch (const LaunchError& error) {
    CHECK(error.kind() == LaunchError::Kind::Compilation);
    CHECK(is_one_line(error.what()));
    CHECK_THAT(error.what(), Catch::Matchers::ContainsSubstring("/nowhere/libnvrtc.so"));
    try {
      std::rethrow_exception(error.cause());
    } catch (const CudaError& cause) {
      CHECK(cause.kind() == CudaError::Kind::Unsupported);
    }
  }
}
