#pragma once

#include <coxswain/perf/harness/suite.hpp>

#include <deque>
#include <string>
#include <utility>

namespace cox::perf {

/// PyTorch's issue of an in-place addition, measured by perf/launch/torch_launch.py in a process of its own: all rounds
/// when the first is asked for, for importing torch takes seconds. Samples as cost_in_bursts gives them.
class TorchPeer {
 public:
  TorchPeer(std::string python, unsigned rounds, unsigned bursts, unsigned burst)
      : python_(std::move(python)), rounds_(rounds), bursts_(bursts), burst_(burst) {}

  /// Throws std::runtime_error if the interpreter, the script or torch is missing.
  [[nodiscard]] Sample next();

 private:
  std::string python_;
  unsigned rounds_;
  unsigned bursts_;
  unsigned burst_;
  std::deque<Sample> samples_;
};

}  // namespace cox::perf
