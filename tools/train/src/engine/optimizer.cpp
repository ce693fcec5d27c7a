#include <engine/optimizer.hpp>
#include <engine/schedule.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <cmath>
#include <utility>

namespace train {

template <class Backend>
Optimizer<Backend>::Optimizer(Device<Backend> device, std::vector<Slice> slices, const OptimizerOptions& options,
                              std::optional<cox::CommunicationId> norm_ranks)
    : device_(std::move(device)),
      slices_(std::move(slices)),
      options_(options),
      norm_ranks_(std::move(norm_ranks)),
      squares_(device_.floats(slices_.size())),
      square_norm_(device_.floats(1)),
      factor_(device_.floats(1)),
      schedule_(device_.floats(3)) {
  device_.client().memory_persistent_allocation([&] {
    for (const Slice& slice : slices_) {
      first_.push_back(device_.client().create(cox::Bytes::zeroed(slice.elements * sizeof(float))));
      second_.push_back(device_.client().create(cox::Bytes::zeroed(slice.elements * sizeof(float))));
    }
  });
  for (std::size_t i = 0; i < slices_.size(); ++i)
    square_.push_back(squares_.offset_start(i * sizeof(float)).offset_end((slices_.size() - i - 1) * sizeof(float)));
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
void Optimizer<Backend>::update() {
  for (std::size_t i = 0; i < slices_.size(); ++i)
    device_.launch(KernelId::SquareSum, slices_[i].elements,
                   Launch().out(square_[i]).in(slices_[i].gradient).size(slices_[i].elements));
  device_.launch(KernelId::Total, 1, Launch().out(square_norm_).in(squares_).size(slices_.size()));
  if (norm_ranks_) device_.client().all_reduce(square_norm_, square_norm_, cox::ElementType::F32, *norm_ranks_);
  device_.launch(KernelId::ClipFactor, 1, Launch().out(factor_).in(square_norm_).number(options_.clip));
  for (std::size_t i = 0; i < slices_.size(); ++i)
    device_.launch(KernelId::AdamW, slices_[i].elements,
                   Launch()
                       .inout(slices_[i].parameter)
                       .inout(first_[i])
                       .inout(second_[i])
                       .in(slices_[i].gradient)
                       .in(factor_)
                       .in(schedule_)
                       .size(slices_[i].elements)
                       .number(options_.beta1)
                       .number(options_.beta2)
                       .number(options_.epsilon)
                       .number(slices_[i].decays ? options_.decay : 0.0F));
}

template class Optimizer<HostBackend>;

}  // namespace train
