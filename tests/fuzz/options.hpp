#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cox::fuzz {

/// What the program was asked for on its command line.
struct Options {
  std::uint64_t seed = 1;            ///< of the first program; each later one has the next seed
  std::size_t operations = 100'000;  ///< of all programs and threads together
  std::size_t length = 1000;         ///< operations of one program
  std::size_t threads = 1;           ///< programs that run at the same time on the same devices
  std::string server = "host";       ///< host, or cuda: over the stand-ins for the driver, NVRTC and NCCL
  bool tight = false;                ///< so little memory that allocations are refused
  enum class Faults { None, Gpus, Call };
  Faults faults = Faults::None;  ///< with cuda, in the middle of most programs: the GPUs fault, or one call fails
  std::size_t seconds = 0;       ///< no program starts later than that; 0: no limit
  std::size_t shown = 24;        ///< operations that are printed on a difference
  std::size_t patience = 60;     ///< seconds without a completed operation that count as a hang
};

/// Throws std::invalid_argument that says what is wrong.
[[nodiscard]] Options parse_options(int argc, const char* const* argv);
/// One line for each option.
[[nodiscard]] std::string usage();

}  // namespace cox::fuzz
