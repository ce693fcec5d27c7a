// Stands in for NVML: one GPU, that with the PCI bus id of the stand-in driver's first device. A test finds the
// variables with dlsym; for a program, rows wait if COX_FAKE_NVML_PENDING is set.
#include <cstdlib>
#include <cstring>

extern "C" {

unsigned cox_fake_nvml_pending =
    std::getenv("COX_FAKE_NVML_PENDING") != nullptr ? 1 : 0;  // rows that wait to be remapped
int cox_fake_nvml_users = 0;                                  // calls of nvmlInit_v2 without their nvmlShutdown

int nvmlInit_v2() {
  ++cox_fake_nvml_users;
  return 0;
}
int nvmlShutdown() {
  --cox_fake_nvml_users;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (cox_fake_nvml_users == 0 || std::strcmp(bus_id, "0000:01:00.0") != 0) return 6;  // NVML_ERROR_NOT_FOUND
  *device = &cox_fake_nvml_pending;
  return 0;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* correctable, unsigned* uncorrectable, unsigned* pending,
                              unsigned* failed) {
  *correctable = 1;
  *uncorrectable = 1;
  *pending = *static_cast<unsigned*>(device) != 0 ? 1U : 0U;
  *failed = 0;
  return 0;
}
}
