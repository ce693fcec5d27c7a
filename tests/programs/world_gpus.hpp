#pragma once

// What programs share that run a world whose processes have GPUs: real ones, or those of the stand-in driver.

#include <coxswain/tests/programs/world_processes.hpp>

#include <coxswain/servers/cuda/server/cuda_server.hpp>

#if COX_WORLD_STAND_INS
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>
#include <coxswain/tests/stand_ins/cuda_driver.hpp>
#include <coxswain/tests/stand_ins/kernel_functions.hpp>
#include <coxswain/tests/stand_ins/nccl_operations.hpp>
#include <coxswain/tests/stand_ins/peer_kernels.hpp>

#include <dlfcn.h>

#include <mutex>
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace cox::test {

/// To be called first in each process: the kernels of the stand-ins are functions of the program.
inline void prepare_gpus() {
#if COX_WORLD_STAND_INS
  FakeCuda* const fake = find_cuda_stand_in();
  if (fake == nullptr) {
    std::fprintf(stderr, "COX_CUDA_DRIVER does not name the stand-in for the driver\n");
    std::_Exit(3);
  }
  const std::lock_guard lock(fake->mutex);
  prepare_nccl_stand_in(*fake);
  prepare_peer_kernels(*fake);
#endif
}

#if COX_WORLD_STAND_INS
/// NCCL has created nothing so far, and has made no unique id.
inline void require_no_nccl() {
  void* const library = ::dlopen(std::getenv("COX_COLLECTIVES_NCCL"), RTLD_NOW | RTLD_NOLOAD);
  void* const entry = library == nullptr ? nullptr : ::dlsym(library, "cox_fake_nccl");
  if (entry == nullptr) return;  // it has not even been opened
  FakeNccl& fake = *reinterpret_cast<FakeNccl* (*)()>(entry)();
  const std::lock_guard lock(fake.mutex);
  if (fake.calls.empty()) return;
  std::fprintf(stderr, "NCCL was called before an operation needed it\n");
  std::_Exit(4);
}
#endif

/// The GPUs of this process: it has `count`, and those of the processes with lower numbers come before, if all are on
/// one host. Each process of the stand-ins has all of them to itself.
inline std::vector<DeviceId> gpus_of_process(std::size_t process, std::size_t count) {
#if COX_WORLD_STAND_INS
  const std::size_t first = 0 * process;
#else
  const std::size_t first = process * count;
#endif
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < count; ++i)
    devices.push_back({.type = cuda_device_type, .index = static_cast<std::uint16_t>(first + i)});
  return devices;
}

}  // namespace cox::test
