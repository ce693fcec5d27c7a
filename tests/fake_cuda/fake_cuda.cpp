// A library that stands in for the CUDA driver where there is no GPU, and where the driver must fail: its entry, its
// devices and their contexts.
#include <coxswain/tests/fake_cuda/fake_driver.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace cox::test;

namespace {

thread_local CUcontext current = nullptr;
thread_local std::vector<CUcontext> below;

}  // namespace

FakeCuda& cox::test::fake_state() {
  static auto& state = *new FakeCuda;
  return state;
}
FakeWorld& cox::test::fake_world() {
  static auto& world = *new FakeWorld;
  return world;
}

CUresult cox::test::fake_failure(const char* function) {
  FakeCuda& fake = fake_state();
  ++fake.calls;
  if (fake.calls_until_fault >= 0 && fake.calls_until_fault-- == 0) {
    fake.faulted = true;
    fake.failed = function;
    fake_world().done.notify_all();
  }
  if (fake.faulted) return fake_fault;
  if (fake.calls_until_failure < 0 || fake.calls_until_failure-- != 0) return CUDA_SUCCESS;
  fake.failed = function;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

int cox::test::current_device() noexcept { return current == nullptr ? 0 : current->device; }

extern "C" {

FakeCuda* cox_fake_cuda() { return &fake_state(); }

CUresult cuInit(unsigned) {
  start_fake_gpus();
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = 13'000;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult result, const char** name) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
    default: *name = "another error of the stand-in"; break;
  }
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "the failure that the test asked for";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  const auto lock = lock_fake();
  *count = fake_state().devices;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const auto lock = lock_fake();
  *device = ordinal;
  return ordinal < fake_state().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  const std::string_view text = "no GPU at all";
  const std::size_t length = std::min(text.size(), static_cast<std::size_t>(size) - 1);
  *std::copy_n(text.begin(), length, name) = '\0';
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 0x7fffffff; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 0xffff; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: {
      const char* const mode = std::getenv("COX_FAKE_COMPUTE_MODE");  // of all devices
      *value = mode == nullptr ? 0 : std::atoi(mode);
      break;
    }
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: *value = 0; break;
    default: *value = 1024;  // limits
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = fake_device_memory;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  *uuid = {};
  uuid->bytes[15] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
  const auto lock = lock_fake();
  *can = fake_state().has_peer_access ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice, CUdevice) {
  const auto lock = lock_fake();
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED && fake_state().has_nvlink ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = &fake_world().contexts.at(static_cast<std::size_t>(device));
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  below.push_back(current);
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  *context = current;
  current = below.back();
  below.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t, CUdriverProcAddressQueryResult*) {
  static const std::map<std::string_view, void*> functions{
#define COX_CUDA_ENTRY(member, function, version) {#function, reinterpret_cast<void*>(&function)},
#include <coxswain/servers/cuda/driver/driver_entries.inc>
#undef COX_CUDA_ENTRY
  };
  const auto found = functions.find(name);
  *function = found != functions.end() ? found->second : nullptr;
  return found != functions.end() ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
