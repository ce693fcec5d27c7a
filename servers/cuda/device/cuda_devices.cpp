#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <coxswain/servers/cuda/device/pci_device.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/nvrtc.hpp>

#include <array>

namespace cox {
namespace {

struct DeviceCount {
  int count = 0;
  CUresult result = CUDA_SUCCESS;
};

// Precondition: there is a driver.
DeviceCount count_devices() {
  DeviceCount found;
  found.result = detail::driver().device_count(&found.count);
  if (found.result != CUDA_SUCCESS) found.count = 0;
  return found;
}

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  COX_CUDA_TRY(device_attribute(&value, which, device));
  return value;
}

CudaDeviceFacts::Use use_of(int compute_mode) noexcept {
  if (compute_mode == CU_COMPUTEMODE_PROHIBITED) return CudaDeviceFacts::Use::Nobody;
  return compute_mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS ? CudaDeviceFacts::Use::OneProcess
                                                          : CudaDeviceFacts::Use::Shared;
}

CUdevice native_device(DeviceId device) {
  static_cast<void>(detail::driver());  // throws if there is none
  const int count = count_devices().count;
  if (device.type != cuda_device_type || device.index >= count)
    throw CudaError(
        CudaError::Kind::Validation, 0,
        device.to_string() + " is not a CUDA device; there are " + std::to_string(count) + ", counted from 0");
  CUdevice native = 0;
  COX_CUDA_TRY(device_get(&native, device.index));
  return native;
}

}  // namespace

std::vector<DeviceId> enumerate_cuda_devices() {
  std::vector<DeviceId> devices;
  if (detail::find_driver().driver == nullptr) return devices;
  const int count = count_devices().count;
  for (int i = 0; i < count; ++i) devices.push_back({cuda_device_type, static_cast<std::uint16_t>(i)});
  return devices;
}

std::string why_no_cuda() {
  const detail::FoundDriver& found = detail::find_driver();
  if (found.driver == nullptr) return found.error;
  const DeviceCount devices = count_devices();
  if (devices.result != CUDA_SUCCESS)
    return "the CUDA driver cannot count its devices: " + detail::describe(devices.result);
  return devices.count > 0 ? "" : "the CUDA driver shows no device to this process";
}

CudaDeviceFacts describe_cuda_device(DeviceId device) {
  const CUdevice native = native_device(device);
  std::array<char, 256> name{};
  std::array<char, 32> bus{};
  CudaDeviceFacts facts;
  COX_CUDA_TRY(device_name(name.data(), static_cast<int>(name.size()), native));
  COX_CUDA_TRY(device_total_memory(&facts.memory, native));
  COX_CUDA_TRY(device_bus_id(bus.data(), static_cast<int>(bus.size()), native));
  facts.name = name.data();
  facts.bus_id = detail::pci_address(bus.data());
  facts.compute_major = attribute(native, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  facts.compute_minor = attribute(native, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  facts.multiprocessors = attribute(native, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts.numa_node = detail::numa_node_of(facts.bus_id);
  facts.ecc = attribute(native, CU_DEVICE_ATTRIBUTE_ECC_ENABLED) != 0;
  facts.use = use_of(attribute(native, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE));
  return facts;
}

CudaPeerFacts describe_cuda_peer(DeviceId device, DeviceId peer) {
  const CUdevice from = native_device(device);
  const CUdevice to = native_device(peer);
  int access = 0;
  CudaPeerFacts facts;
  COX_CUDA_TRY(device_can_access_peer(&access, from, to));
  facts.access = access != 0;
  if (!facts.access) return facts;
  COX_CUDA_TRY(device_peer_attribute(&facts.rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, from, to));
  int atomics = 0;
  COX_CUDA_TRY(device_peer_attribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to));
  facts.atomics = atomics != 0;
  return facts;
}

CudaLibraryFacts describe_cuda_driver() {
  const detail::FoundDriver& found = detail::find_driver();
  const bool there = found.driver != nullptr;
  return {.found = there, .version = there ? found.driver->version : 0, .error = found.error};
}

CudaLibraryFacts describe_nvrtc() {
  const detail::FoundNvrtc& found = detail::find_nvrtc();
  const bool there = found.nvrtc != nullptr;
  return {.found = there, .version = there ? found.nvrtc->version : 0, .error = found.error};
}

}  // namespace cox
