#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/servers/cuda/device/row_remapping.hpp>
#include <coxswain/tests/servers/cuda/open_cuda.hpp>
#include <coxswain/tests/support/catch.hpp>

using namespace cox;

// What it says of rows that wait is tested over a stand-in for NVML: tests/servers/cuda_without_gpu.
TEST_CASE("NVML knows whether rows of a GPU's memory wait to be remapped", "[gpu]") {
  COX_REQUIRE_GPUS(1);
  for (const DeviceId device : enumerate_cuda_devices()) {
    const CudaDeviceFacts facts = describe_cuda_device(device);
    if (!facts.ecc || facts.compute_major < 8) continue;  // has no remapping, or may have none
    CAPTURE(facts.name);
    detail::RowRemapping of_gpu("libnvidia-ml.so.1");
    of_gpu.prepare(detail::bus_id_of(device.index));
    CHECK(of_gpu.is_pending(detail::bus_id_of(device.index)).has_value());
    CHECK_FALSE(of_gpu.is_pending("0000:ff:1f.7"));
  }
}
