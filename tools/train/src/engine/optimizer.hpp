#pragma once

#include <engine/backends.hpp>
#include <engine/options.hpp>
#include <model/shape.hpp>

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace train {

/// The part of a parameter that a device updates: all of it, or its shard.
struct Slice {
  cox::Handle parameter;
  cox::Handle gradient;
  std::optional<cox::Handle> copy;  ///< where the parameter is also written, rounded to the type of activations
  std::size_t elements = 0;
  bool decays = false;
};

/// Memory with gradients, floats, of which the norm is computed.
struct GradientBlock {
  cox::Handle memory;
  std::size_t elements = 0;  ///< what is between gradients is zero
};

/// The first and second moments of each slice.
struct Moments {
  std::vector<cox::Handle> first;
  std::vector<cox::Handle> second;
};

/// AdamW with clipping by the norm of all gradients. All calls queue work and return.
template <class Backend>
class Optimizer {
 public:
  /// `norm_ranks`: the devices whose slices together are the model, if this device has only some of them; the norm is
  /// then summed over these devices. `blocks`: where the gradients of all slices are; by default each is a block. Fewer
  /// blocks are fewer kernels. `moments`: their memory, which is not changed here; none: new memory with zeros.
  Optimizer(Device<Backend> device, std::vector<Slice> slices, const OptimizerOptions& options,
            std::optional<cox::CommunicationId> norm_ranks, std::vector<GradientBlock> blocks = {},
            std::optional<Moments> moments = std::nullopt);

  [[nodiscard]] const Moments& moments() const { return moments_; }

  /// Uploads what depends on the step, counted from 1. Not part of a captured step.
  void set_step(std::size_t step, std::size_t steps);
  /// Computes the factor that limits the norm of the gradients. Can be captured.
  void clip();
  /// Updates the parameters and the moments from the gradients, after clip(). Can be captured.
  void update();

 private:
  Device<Backend> device_;
  std::vector<Slice> slices_;
  std::vector<GradientBlock> blocks_;
  OptimizerOptions options_;
  std::optional<cox::CommunicationId> norm_ranks_;
  Moments moments_;
  cox::Handle squares_;              // of each block, sums of the squares of its elements
  std::vector<cox::Handle> square_;  // views of squares_
  cox::Handle square_norm_;
  cox::Handle factor_;
  cox::Handle schedule_;
};

}  // namespace train
