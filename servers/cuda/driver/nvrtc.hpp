#pragma once

#include <nvrtc.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace cox::detail {

/// NVRTC, the compiler of CUDA C++ as a library, opened at run time: one pointer for each function that we call.
struct Nvrtc {
#define COX_NVRTC_ENTRY(member, function) decltype(&function) member = nullptr;
#include <coxswain/servers/cuda/driver/nvrtc_entries.inc>
#undef COX_NVRTC_ENTRY
  int version = 0;                              ///< in the driver's format: 13000 is 13.0
  std::vector<std::filesystem::path> includes;  ///< the folders of the CUDA toolkit's headers; empty: there are none
  /// Differs between releases of these headers, of the toolkit and of CCCL; the same on all machines. Other changes of
  /// the headers do not change it.
  std::string includes_version;
};

struct FoundNvrtc {
  std::unique_ptr<const Nvrtc> nvrtc;  ///< null: there is no NVRTC that we can use
  std::string error;                   ///< one line; empty if there is one
};

/// Opens the first of these files that can be opened as a library; it stays open until the process ends. `names`: the
/// names that were searched, for `error`.
[[nodiscard]] FoundNvrtc open_nvrtc(const std::vector<std::string>& files, const std::string& names);

/// The NVRTC of the process; the first call opens it. Any thread. Throws ConfigError.
[[nodiscard]] const FoundNvrtc& find_nvrtc();

/// NVRTC. Throws LaunchError Compilation, whose cause is a CudaError Unsupported, if there is none that we can use;
/// ConfigError. Any thread; does not block after the first call.
[[nodiscard]] const Nvrtc& nvrtc();

}  // namespace cox::detail
