#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

namespace cox::detail {

/// The CUDA driver, opened at run time: one pointer for each function that we call, in the version that we compiled
/// against. The library is not linked to the driver, so programs also start where there is none.
struct Driver {
#define COX_CUDA_ENTRY(member, function, version) PFN_##function##_v##version member = nullptr;
#include <coxswain/servers/cuda/driver/driver_entries.inc>
#undef COX_CUDA_ENTRY
  /// The version as the driver reports it: 13000 is 13.0.
  int version = 0;

  /// Looks up another function, in the version `signature`. Throws CudaError Unsupported if the driver does not have
  /// it.
  [[nodiscard]] void* find(const char* function, int signature) const;
  PFN_cuGetProcAddress_v12000 get_proc_address = nullptr;
};

/// The result of opening the driver. The first call of find_driver() opens it, once in the process. Any thread.
struct FoundDriver {
  const Driver* driver = nullptr;  ///< null: there is no driver that we can use
  std::string error;               ///< one line; empty if there is one
};
[[nodiscard]] const FoundDriver& find_driver();

/// Whether the process is ending, and the driver with it: nothing is released to the driver any more (L13). Any thread.
[[nodiscard]] bool process_is_ending() noexcept;

/// The driver. Throws CudaError Unsupported if there is none that we can use. Any thread; does not block after the
/// first call.
[[nodiscard]] const Driver& driver();

}  // namespace cox::detail
