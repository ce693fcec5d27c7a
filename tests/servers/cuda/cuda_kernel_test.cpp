#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <string>
#include <type_traits>

using cox::CubeDim;
using cox::CudaKernel;
using cox::LaunchError;
using cox::test::kind_of;

TEST_CASE("A kernel has a name, a cube and options, and its copies share them") {
  const CudaKernel kernel =
      CudaKernel::from_source("scale", CubeDim::of_1d(256), "source", {.dynamic_shared_memory = 1024});
  const CudaKernel wider = kernel.with_cube_dim(CubeDim::of_2d(32, 8));
  CHECK(kernel.name() == "scale");
  CHECK(kernel.cube_dim() == CubeDim::of_1d(256));
  CHECK(wider.cube_dim() == CubeDim::of_2d(32, 8));
  CHECK(&wider.name() == &kernel.name());
  CHECK(wider.options().dynamic_shared_memory == 1024);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<CudaKernel>);
  STATIC_REQUIRE(sizeof(CudaKernel) <= 32);
}

TEST_CASE("Images are taken as bytes that are the kernel's own or copied") {
  const std::string ptx = ".version 8.0\n";
  CHECK(CudaKernel::from_image("k", {}, std::as_bytes(std::span(ptx))).name() == "k");
  CHECK(CudaKernel::from_image("k", {}, std::vector<std::byte>(3)).name() == "k");
}

TEST_CASE("A kernel is not prepared for a device that is not open, and to launch it is refused") {
  int resolved = 0;
  const CudaKernel kernel = CudaKernel::from_function("mine", {}, [&]() -> void* { return ++resolved, nullptr; });
  for (const std::uint16_t index : std::initializer_list<std::uint16_t>{0, 63, 64, 65535}) {
    kernel.prepare({1, index});
    CHECK(kernel.loaded(index) == nullptr);
  }
  CHECK(resolved == 0);
  CHECK(kind_of<LaunchError>([&] { (void)kernel.require_loaded({{1, 0}, {3}}, std::source_location::current()); }) ==
        LaunchError::Kind::NullFunction);
}
