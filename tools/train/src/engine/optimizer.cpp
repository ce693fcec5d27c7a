#include <engine/optimizer.hpp>
#include <engine/schedule.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <cmath>
#include <utility>

namespace train {
namespace {

// Number of sums of squares: each is that of square_sum_elements elements.
std::size_t square_count(const GradientBlock& block) {
  return (block.elements + square_sum_elements - 1) / square_sum_elements;
}
std::size_t square_count(const std::vector<GradientBlock>& blocks) {
  std::size_t count = 0;
  for (const GradientBlock& block : blocks) count += square_count(block);
  return count;
}

std::vector<GradientBlock> blocks_or(std::vector<GradientBlock> blocks, const std::vector<Slice>& slices) {
  if (blocks.empty())
    for (const Slice& slice : slices) blocks.push_back({slice.gradient, slice.elements});
  return blocks;
}

template <class Backend>
Moments zero_moments(const Device<Backend>& device, const std::vector<Slice>& slices) {
  Moments moments;
  device.client().memory_persistent_allocation([&] {
    for (const Slice& slice : slices) {
      moments.first.push_back(device.client().create(cox::Bytes::zeroed(slice.elements * sizeof(float))));
      moments.second.push_back(device.client().create(cox::Bytes::zeroed(slice.elements * sizeof(float))));
    }
  });
  return moments;
}

}  // namespace

template <class Backend>
Optimizer<Backend>::Optimizer(Device<Backend> device, std::vector<Slice> slices, const OptimizerOptions& options,
                              std::optional<cox::CommunicationId> norm_ranks, std::vector<GradientBlock> blocks,
                              std::optional<Moments> moments)
    : device_(std::move(device)),
      slices_(std::move(slices)),
      blocks_(blocks_or(std::move(blocks), slices_)),
      options_(options),
      norm_ranks_(std::move(norm_ranks)),
      moments_(moments ? std::move(*moments) : zero_moments(device_, slices_)),
      squares_(device_.floats(square_count(blocks_))),
      square_norm_(device_.floats(1)),
      factor_(device_.floats(1)),
      schedule_(device_.floats(3)) {
  const std::size_t count = square_count(blocks_);
  std::size_t first = 0;
  for (const GradientBlock& block : blocks_) {
    const std::size_t end = first + square_count(block);
    square_.push_back(squares_.offset_start(first * sizeof(float)).offset_end((count - end) * sizeof(float)));
    first = end;
  }
}

template <class Backend>
void Optimizer<Backend>::set_step(std::size_t step, std::size_t steps) {
  const auto correction = [&](float beta) {
    return static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(step))));
  };
  device_.client().write(
      schedule_, cox::Bytes::from_vector(std::vector<float>{learning_rate(options_, step, steps),
                                                            correction(options_.beta1), correction(options_.beta2)}));
}

template <class Backend>
void Optimizer<Backend>::clip() {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    device_.launch(KernelId::SquareSum, {.columns = blocks_[i].elements},
                   Launch().out(square_[i]).in(blocks_[i].memory).size(blocks_[i].elements));
  device_.launch(KernelId::Total, {}, Launch().out(square_norm_).in(squares_).size(square_count(blocks_)));
  if (norm_ranks_) device_.client().all_reduce(square_norm_, square_norm_, cox::ElementType::F32, *norm_ranks_);
  device_.launch(KernelId::ClipFactor, {}, Launch().out(factor_).in(square_norm_).number(options_.clip));
}

template <class Backend>
void Optimizer<Backend>::update() {
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const Slice& slice = slices_[i];
    Launch arguments;
    std::move(arguments).inout(slice.parameter).inout(moments_.first[i]).inout(moments_.second[i]);
    if (slice.copy) std::move(arguments).out(*slice.copy);
    std::move(arguments)
        .in(slice.gradient)
        .in(factor_)
        .in(schedule_)
        .size(slice.elements)
        .number(options_.beta1)
        .number(options_.beta2)
        .number(options_.epsilon)
        .number(slice.decays ? options_.decay : 0.0F);
    device_.launch(slice.copy ? KernelId::AdamWRounded : KernelId::AdamW, {.columns = slice.elements},
                   std::move(arguments));
  }
}

template class Optimizer<HostBackend>;
#ifdef TRAIN_CUDA
template class Optimizer<CudaBackend>;
#endif

}  // namespace train
