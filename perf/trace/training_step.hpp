#pragma once

#include <coxswain/perf/trace/allocation_trace.hpp>

#include <cstddef>
#include <cstdint>

namespace cox::perf {

/// The shape of a transformer whose training steps are to be played.
struct TrainingShape {
  std::size_t layers = 12;
  std::size_t width = 768;
  std::size_t vocabulary = 50'257;
  std::size_t batch = 8;
  std::size_t shortest = 256;  ///< sequence length of a step, drawn evenly
  std::size_t longest = 2048;
  unsigned steps = 20;
  std::uint64_t seed = 1;
};

/// What such a program asks for: weights that stay, then for every step activations layer by layer that live until the
/// backward pass comes to them, temporary buffers within each layer, gradients that the first step allocates, and the
/// optimiser's state. Two bytes an activation, four a weight.
[[nodiscard]] AllocationTrace training_steps(const TrainingShape& shape);

}  // namespace cox::perf
