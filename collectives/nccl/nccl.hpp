#pragma once

#include <coxswain/collectives/nccl/nccl_types.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

struct CUstream_st;  // what a CUstream and a cudaStream_t point to

namespace cox::detail {

/// The return value of NCCL's functions: its ncclResult_t.
enum class NcclResult : int {
  Success = 0,
  UnhandledCudaError = 1,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7,
};

/// NCCL's ncclComm_t: one rank of a communicator.
using NcclComm = struct ncclComm*;

/// NCCL's ncclUniqueId.
struct NcclUniqueId {
  std::array<char, 128> bytes{};
};

/// The first members of NCCL's ncclConfig_t, up to commName (2.27). An older NCCL reads only those that it has; a newer
/// one takes its defaults for those that are missing here.
struct NcclConfig {
  static constexpr int undefined = std::numeric_limits<int>::min();

  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 0;  ///< Nccl::version
  int blocking = undefined;
  int cga_cluster_size = undefined;
  int min_ctas = undefined;
  int max_ctas = undefined;
  const char* net_name = nullptr;
  int split_share = undefined;
  int traffic_class = undefined;
  const char* comm_name = nullptr;
};

/// NCCL's functions, loaded at run time: one pointer for each function that we call. NCCL's interface is declared here
/// again, so that nccl.h is not needed to compile. Where nccl.h is found, a test compares the declarations.
struct Nccl {
#define COX_NCCL_ENTRY(member, function, ...) NcclResult (*member)(__VA_ARGS__) = nullptr;
#include <coxswain/collectives/nccl/nccl_entries.inc>
#undef COX_NCCL_ENTRY
  const char* (*error_text)(NcclResult) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;
  NcclResult (*revoke)(NcclComm, int) = nullptr;  ///< null before 2.28.9
  /// Null before 2.18.
  NcclResult (*split)(NcclComm, int color, int key, NcclComm*, NcclConfig*) = nullptr;
  int version = 0;   ///< in NCCL's encoding: 22809 is 2.28.9
  std::string file;  ///< path of the library
};

struct FoundNccl {
  const Nccl* nccl = nullptr;  ///< null: no usable NCCL was found
  std::string error;           ///< one line that says why; empty if one was found
};

/// Opens the first of these files that is a library, and checks that it is a usable NCCL. It is never closed.
[[nodiscard]] FoundNccl open_nccl(const std::vector<std::string>& files);

/// The NCCL of the process. The first call opens it: the file of the setting collectives.nccl, else libnccl.so.2 from
/// the loader's path, the CUDA toolkit or the Python wheels. Any thread. Throws ConfigError.
///
/// NVLink multicast (NVLS) is disabled unless the setting collectives.nvlink_multicast enables it: before NCCL is
/// opened, NCCL_NVLS_ENABLE=0 is added to the environment, if the variable is not set. NCCL_RUNTIME_CONNECT=0 is added
/// in the same way. With it, NCCL connects all ranks when a communicator is created, not when an algorithm is first
/// used.
[[nodiscard]] const FoundNccl& find_nccl();

/// The NCCL of the process. Throws CollectiveError Unsupported if no usable one is found; ConfigError. Any thread; does
/// not block after the first call.
[[nodiscard]] const Nccl& nccl();

/// For communicators on which operations are launched. `ctas`: of NCCL's kernels; 0: as many as NCCL chooses. `name`:
/// in NCCL's log, which keeps the pointer; null: none.
[[nodiscard]] NcclConfig launch_config(int ctas, const char* name);

/// "2.28.9".
[[nodiscard]] std::string nccl_version_text(int version);

}  // namespace cox::detail
