#pragma once

#include <coxswain/collectives/nccl/nccl_types.hpp>

#include <cstddef>
#include <string>
#include <vector>

struct CUstream_st;  // what a CUstream and a cudaStream_t point to

namespace cox::detail {

/// What NCCL's functions return: its ncclResult_t.
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

/// NCCL, opened at run time: one pointer for each function that we call. Its interface is said here in our own words,
/// so that it need not be there to compile; where nccl.h is found, a test compares the two.
struct Nccl {
#define COX_NCCL_ENTRY(member, function, ...) NcclResult (*member)(__VA_ARGS__) = nullptr;
#include <coxswain/collectives/nccl/nccl_entries.inc>
#undef COX_NCCL_ENTRY
  const char* (*error_text)(NcclResult) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;
  NcclResult (*revoke)(NcclComm, int) = nullptr;  ///< null before 2.28.9
  int version = 0;                                ///< as NCCL counts: 22809 is 2.28.9
  std::string file;                               ///< of the library
};

struct FoundNccl {
  const Nccl* nccl = nullptr;  ///< null: there is none that we can use
  std::string error;           ///< one line; empty if there is one
};

/// The first of these files that is NCCL. It stays open for good.
[[nodiscard]] FoundNccl open_nccl(const std::vector<std::string>& files);

/// That of the process, which the first call opens: the file of the setting collectives.nccl, else libnccl.so.2 where
/// the loader, the CUDA toolkit or the Python wheels have it. Any thread. Throws ConfigError.
///
/// NVLink multicast (NVLS) stays off unless the setting collectives.nvlink_multicast asks for it: where the environment
/// does not say, NCCL_NVLS_ENABLE=0 is put into it, once, before NCCL is opened; so is NCCL_RUNTIME_CONNECT=0, which
/// has NCCL connect all ranks when a communicator is made, not when each algorithm is first chosen.
[[nodiscard]] const FoundNccl& find_nccl();

/// Throws CollectiveError Unsupported if there is none; ConfigError. Any thread; does not block after the first call.
[[nodiscard]] const Nccl& nccl();

/// "2.28.9".
[[nodiscard]] std::string nccl_version_text(int version);

}  // namespace cox::detail
