#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/nccl/device_versions.hpp>

#include <array>
#include <string>

using namespace cox;
using cox::detail::device_versions;
using cox::detail::differ_in_nccl;

TEST_CASE("A process has the versions of the libraries for its kinds of devices") {
  constexpr std::uint16_t type = 13;  // of no real device
  detail::set_device_versions(type, [] { return std::string("NCCL 2.28.9, driver of CUDA 13.0"); });
  CHECK(device_versions({}).empty());
  CHECK(device_versions(std::array{DeviceId{14, 0}}).empty());
  CHECK(device_versions(std::array{DeviceId{14, 0}, DeviceId{type, 1}, DeviceId{type, 0}}) ==
        "NCCL 2.28.9, driver of CUDA 13.0");
  detail::set_device_versions(type, nullptr);
  CHECK(device_versions(std::array{DeviceId{type, 0}}).empty());
}

TEST_CASE("NCCL must have one version in a world, the driver need not") {
  CHECK(differ_in_nccl("NCCL 2.28.9, driver of CUDA 13.0", "NCCL 2.27.5, driver of CUDA 13.0"));
  CHECK(differ_in_nccl("no NCCL, no driver", "NCCL 2.27.5, driver of CUDA 13.0"));
  CHECK_FALSE(differ_in_nccl("NCCL 2.28.9, driver of CUDA 13.0", "NCCL 2.28.9, driver of CUDA 12.9"));
  CHECK_FALSE(differ_in_nccl("", "NCCL 2.28.9, driver of CUDA 12.9"));
}
