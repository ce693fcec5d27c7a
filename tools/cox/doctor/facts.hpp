#pragma once

#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cox::tools {

/// The NCCL library. The version is NCCL's version code: 22809 is 2.28.9.
struct NcclFacts {
  bool found = false;
  int version = 0;
  std::string file;
  std::string error;
};

/// Limits and resources of this process. A limit of nullopt means unlimited, unless noted otherwise.
struct LimitFacts {
  std::optional<std::uint64_t> open_files;
  std::optional<std::uint64_t> locked_memory;  ///< bytes
  std::optional<std::uint64_t> address_space;  ///< bytes
  std::optional<std::uint64_t> shared_memory;  ///< bytes of /dev/shm; nullopt: it does not exist
  std::size_t cores = 0;                       ///< cores of the machine
  std::size_t usable_cores = 0;                ///< cores that this process may run on
  std::optional<double> core_quota;            ///< CPU time limit of the control group, in cores
  std::string huge_pages;                      ///< mode of transparent huge pages: "madvise"; empty: unknown
  bool infiniband = false;                     ///< the machine has InfiniBand network cards
};

/// All facts that `cox doctor` checks.
struct Facts {
  bool cuda_server = true;  ///< this build has one; else nothing is known of GPUs and their libraries
  CudaLibraryFacts driver;
  CudaLibraryFacts nvrtc;
  NcclFacts nccl;
  bool names_nvrtc = false;                       ///< the setting compilation.nvrtc names a file
  bool names_nccl = false;                        ///< the setting collectives.nccl names a file
  std::vector<CudaDeviceFacts> gpus;              ///< by device index
  std::vector<std::vector<CudaPeerFacts>> peers;  ///< [from][to]; no meaning where both are the same
  LimitFacts limits;
  std::map<std::string, std::string> environment;  ///< variables CUDA_* and NCCL_* that are set
  bool arm = false;                                ///< the machine has an ARM processor
};

}  // namespace cox::tools
