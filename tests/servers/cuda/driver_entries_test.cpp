#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace {

constexpr auto functions = std::to_array<std::string_view>({
#define COX_CUDA_ENTRY(member, function, version) #function,
#include <coxswain/servers/cuda/driver/driver_entries.inc>
#undef COX_CUDA_ENTRY
});

bool calls(std::string_view function) { return std::ranges::find(functions, function) != functions.end(); }

}  // namespace

// All calls of the driver go through this table: what is not in it, the library cannot call.
TEST_CASE("T10: the library has no way to the driver's host callbacks, which would run behind its back") {
  REQUIRE(calls("cuLaunchKernelEx"));
  CHECK_FALSE(calls("cuLaunchHostFunc"));
  CHECK_FALSE(calls("cuStreamAddCallback"));
  CHECK_FALSE(calls("cuGraphAddHostNode"));
}

TEST_CASE("The library has no way to what waits for the whole device, to managed memory or to NVLink multicast") {
  for (const auto* function : {"cuCtxSynchronize", "cuMemAllocManaged", "cuMulticastCreate", "cuModuleLoadData",
                               "cuModuleUnload", "cuDevicePrimaryCtxReset", "cuMemHostUnregister"})
    CHECK_FALSE(calls(function));
}
