#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

namespace cox::detail {

/// The CUDA driver, opened at run time: one pointer for each function that we call, in the version that we compiled
/// against. No program of ours is linked with it, so that all start where there is none.
struct Driver {
#define COX_CUDA_ENTRY(member, function, version) PFN_##function##_v##version member = nullptr;
#include <coxswain/servers/cuda/driver/driver_entries.inc>
#undef COX_CUDA_ENTRY
  /// As the driver counts: 13000 is 13.0.
  int version = 0;

  /// Another function, in the version of a signature. Throws CudaError Unsupported if the driver has none.
  [[nodiscard]] void* find(const char* function, int signature) const;
  PFN_cuGetProcAddress_v12000 get_proc_address = nullptr;
};

/// What came of opening the driver, which the first call does, once in the process. Any thread.
struct FoundDriver {
  const Driver* driver = nullptr;  ///< null: there is none that we can use
  std::string error;               ///< one line; empty if there is one
};
[[nodiscard]] const FoundDriver& find_driver();

/// The process is ending, and the driver with it: nothing is given back to it any more (L13). Any thread.
[[nodiscard]] bool process_is_ending() noexcept;

/// Throws CudaError Unsupported if there is none. Any thread; does not block after the first call.
[[nodiscard]] const Driver& driver();

}  // namespace cox::detail
