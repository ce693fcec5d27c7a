#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <coxswain/servers/cuda/device/pci_device.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

TEST_CASE("Either there are CUDA devices, or one line says why not") {
  const std::string why = cox::why_no_cuda();
  CHECK(cox::enumerate_cuda_devices().empty() != why.empty());
  CHECK(std::ranges::count(why, '\n') == 0);
}

TEST_CASE("A CUDA device that is not there is not described") {
  for (const cox::DeviceId device : {cox::DeviceId{cox::cuda_device_type, 65535}, cox::DeviceId{0, 0}})
    CHECK_THROWS_AS(cox::describe_cuda_device(device), cox::CudaError);
}

TEST_CASE("The NUMA node of a device is what the system says, if it says one") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "cox-test-pci";
  const std::string address = cox::detail::pci_address("0000:3B:00.0");
  CHECK(address == "0000:3b:00.0");
  std::filesystem::create_directories(folder / address);
  CHECK_FALSE(cox::detail::numa_node_of(address, folder));
  std::ofstream(folder / address / "numa_node") << "1\n";
  CHECK(cox::detail::numa_node_of(address, folder) == 1);
  std::ofstream(folder / address / "numa_node") << "-1\n";
  CHECK_FALSE(cox::detail::numa_node_of(address, folder));
  std::filesystem::remove_all(folder);
}
