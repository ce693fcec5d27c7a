#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace cox {

/// A GPU fault: a kernel has trapped, failed an assertion or accessed invalid memory, or a GPU has failed. All GPUs of
/// the process are lost, and cannot be recovered inside the process. From then on no CUDA device carries out a call:
/// launches and writes do nothing, and whatever waits for a result or a stream gets the fault. Host devices continue.
/// The process should end and be restarted by a supervisor (`cox run`).
struct GpuFault {
  int code = 0;      ///< the driver's error code (CUresult)
  std::string name;  ///< name of the code: "CUDA_ERROR_ILLEGAL_ADDRESS"
  std::string call;  ///< the driver call that returned it
  /// An operation that may have caused the fault: issued to a stream, and not known to have completed.
  struct Suspect {
    std::string operation;  ///< "launch of scale"
    std::string place;      ///< "cuda:0, stream 3"
    std::string site;       ///< "train.cpp:31"
  };
  std::vector<Suspect> suspects;  ///< of each stream: from the first operation not known to have completed on
  std::chrono::system_clock::time_point when;

  /// One line: the cause and the suspects.
  [[nodiscard]] std::string to_string() const;
};

/// The fault of the process; null while there is none. Any thread, does not block.
[[nodiscard]] std::shared_ptr<const GpuFault> gpu_fault() noexcept;

/// The exit code of a process that has lost its GPUs. It differs from the codes that programs use: those of sysexits.h
/// end at 78.
inline constexpr int gpu_fault_exit_code = 86;

/// gpu_fault_exit_code after a fault, else `code`: `return cox::exit_code(0)` at the end of main.
[[nodiscard]] int exit_code(int code) noexcept;

}  // namespace cox
