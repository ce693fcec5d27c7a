#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace cox {

/// A kernel has trapped, failed an assertion or reached beyond memory, or a GPU has failed. That takes every GPU of the
/// process and cannot be undone inside it: all CUDA devices refuse all calls from then on, host devices go on, and the
/// process should end, to be started again by a supervisor (`cox run`).
struct GpuFault {
  int code = 0;      ///< the driver's (CUresult)
  std::string name;  ///< of the code: "CUDA_ERROR_ILLEGAL_ADDRESS"
  std::string call;  ///< the call of the driver that showed it
  /// An operation that may have been the culprit: given to a stream, and not known to be complete.
  struct Suspect {
    std::string operation;  ///< "launch of scale"
    std::string place;      ///< "cuda:0, stream 3"
    std::string site;       ///< "train.cpp:31"
  };
  std::vector<Suspect> suspects;  ///< of each stream the first that is not known to be complete, and those after it
  std::chrono::system_clock::time_point when;

  /// One line: the cause and the suspects.
  [[nodiscard]] std::string to_string() const;
};

/// The process's fault; null while there is none. Any thread, does not block.
[[nodiscard]] std::shared_ptr<const GpuFault> gpu_fault() noexcept;

/// What a process ends with whose GPUs are gone. As distinct from what programs use: sysexits.h ends at 78.
inline constexpr int gpu_fault_exit_code = 86;

/// gpu_fault_exit_code after a fault, else `code`: `return cox::exit_code(0)` at the end of main.
[[nodiscard]] int exit_code(int code) noexcept;

}  // namespace cox
