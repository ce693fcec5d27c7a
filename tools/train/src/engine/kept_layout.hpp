#pragma once

#include <model/shape.hpp>

#include <coxswain/runtime/handle/handle.hpp>

#include <array>
#include <cstddef>
#include <vector>

namespace train {

/// The state of one rank as four allocations: all tensors of a kind lie in one, one after the other. Memory that other
/// processes can map comes in granules of 2 MiB on GPUs, and each allocation takes time to open after a restart.
class KeptLayout {
 public:
  enum Kind : std::size_t { Parameters, FirstMoments, SecondMoments, Losses };
  static constexpr std::array<const char*, 4> names{"parameters", "first moments", "second moments", "losses"};
  static constexpr std::array kinds{Parameters, FirstMoments, SecondMoments, Losses};
  /// Bytes of which the address of each tensor is a multiple, as that of an allocation.
  static constexpr std::size_t alignment = 256;

  /// `moment_parts`: number of ranks that share the moments of each parameter. `steps`: each has one loss.
  KeptLayout(const ParameterList& list, std::size_t moment_parts, std::size_t steps);

  /// Bytes of the allocation, a multiple of a float.
  [[nodiscard]] std::size_t bytes(Kind kind) const { return bytes_[kind]; }
  /// The tensors in the allocation, in the order of the parameters. Not for Losses.
  [[nodiscard]] std::vector<cox::Handle> tensors(Kind kind, const cox::Handle& memory) const;

 private:
  std::vector<std::size_t> elements_;  // floats of each parameter
  std::size_t moment_parts_;
  std::array<std::size_t, 4> bytes_{};
};

}  // namespace train
