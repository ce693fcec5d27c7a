#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/compile/kernel_parameter.hpp>

#include <cuda.h>

#include <cstdint>
#include <vector>

using cox::Access;
using cox::KernelParameter;

namespace {

struct Extents {
  std::uint32_t values[5];
};

void kernel(const float*, float* const, const void*, double, Extents, const CUtensorMap, unsigned char, const bool) {}

}  // namespace

TEST_CASE("The parameters of a kernel are deduced from its type") {
  CHECK(KernelParameter::of_function(&kernel) ==
        std::vector{KernelParameter::buffer(Access::Read), KernelParameter::buffer(),
                    KernelParameter::buffer(Access::Read), KernelParameter::scalar(8), KernelParameter::scalar(20),
                    KernelParameter::tensor_map(), KernelParameter::scalar(1), KernelParameter::scalar(1)});
  CHECK(KernelParameter::of_function(+[] {}).empty());
}

TEST_CASE("A tensor map has the size that the driver gives it") {
  CHECK(KernelParameter::tensor_map().size == sizeof(CUtensorMap));
}
