#pragma once

#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cox::tools {

/// NCCL. Versions as it counts: 22809 is 2.28.9.
struct NcclFacts {
  bool found = false;
  int version = 0;
  std::string file;
  std::string error;
};

/// What the system lets this process have. A limit that is not there is none.
struct LimitFacts {
  std::optional<std::uint64_t> open_files;
  std::optional<std::uint64_t> locked_memory;  ///< bytes
  std::optional<std::uint64_t> address_space;  ///< bytes
  std::optional<std::uint64_t> shared_memory;  ///< bytes of /dev/shm; none: it is not there
  std::size_t cores = 0;                       ///< of the machine
  std::size_t usable_cores = 0;                ///< that this process may run on
  std::optional<double> core_quota;            ///< as many cores' time it gets
  std::string huge_pages;                      ///< transparent ones: "madvise"; empty: not known
  bool infiniband = false;                     ///< there are such network cards
};

/// All that `cox doctor` looks at.
struct Facts {
  CudaLibraryFacts driver;
  CudaLibraryFacts nvrtc;
  NcclFacts nccl;
  bool names_nvrtc = false;                       ///< The setting compilation.nvrtc does.
  bool names_nccl = false;                        ///< The setting collectives.nccl does.
  std::vector<CudaDeviceFacts> gpus;              ///< by index
  std::vector<std::vector<CudaPeerFacts>> peers;  ///< [from][to]; without meaning where they are the same
  LimitFacts limits;
  std::map<std::string, std::string> environment;  ///< the variables that matter, as far as they are set
  bool arm = false;                                ///< the machine's processor
};

}  // namespace cox::tools
