#include <coxswain/perf/trace/training_step.hpp>

#include <random>
#include <vector>

namespace cox::perf {
namespace {

constexpr std::size_t activation_bytes = 2;
constexpr std::size_t weight_bytes = 4;

class Program {
 public:
  explicit Program(const TrainingShape& shape) : shape_(shape), random_(shape.seed) { trace_.name = "training steps"; }

  AllocationTrace run() && {
    std::vector<std::size_t> weights{shape_.vocabulary * shape_.width};
    for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
      weights.insert(weights.end(), {3 * square(), square(), 4 * square(), 4 * square(), shape_.width, shape_.width});
    }
    keep(weights);
    for (unsigned step = 0; step < shape_.steps; ++step) {
      pass(std::uniform_int_distribution<std::size_t>(shape_.shortest, shape_.longest)(random_),
           step == 0 ? &weights : nullptr);
      if (step == 0) keep(weights), keep(weights);  // two moments of the optimiser
    }
    return std::move(trace_);
  }

 private:
  [[nodiscard]] std::size_t square() const noexcept { return shape_.width * shape_.width; }

  std::uint32_t take(std::size_t bytes) {
    const auto number = static_cast<std::uint32_t>(trace_.allocations++);
    trace_.events.push_back({number, 0, bytes});
    return number;
  }
  void free(std::uint32_t number) { trace_.events.push_back({number, 0, 0}); }
  void keep(const std::vector<std::size_t>& elements) {
    for (const std::size_t count : elements) take(count * weight_bytes);
  }

  // Forward and backward; `gradients`: of which sizes the backward pass allocates gradients that stay.
  void pass(std::size_t length, const std::vector<std::size_t>* gradients) {
    const std::size_t row = shape_.batch * length * shape_.width * activation_bytes;
    const std::size_t scores = shape_.batch * 12 * length * 64 * activation_bytes;
    std::vector<std::vector<std::uint32_t>> saved;
    for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
      saved.push_back({take(row), take(3 * row), take(row), take(4 * row)});
      const std::uint32_t temporary = take(scores);
      const std::uint32_t residual = take(row);
      free(temporary);
      saved.back().push_back(take(4 * row));
      free(residual);
    }
    const std::uint32_t logits = take(shape_.batch * length * shape_.vocabulary * activation_bytes);
    const std::uint32_t loss_gradient = take(shape_.batch * length * shape_.vocabulary * activation_bytes);
    free(logits);
    std::uint32_t flowing = take(row);
    free(loss_gradient);
    while (!saved.empty()) {
      const std::uint32_t wide = take(4 * row);
      const std::uint32_t attention = take(3 * row);
      free(wide);
      const std::uint32_t next = take(row);
      free(attention);
      free(flowing);
      flowing = next;
      for (const std::uint32_t activation : saved.back()) free(activation);
      saved.pop_back();
    }
    free(flowing);
    if (gradients != nullptr) keep(*gradients);
  }

  TrainingShape shape_;
  std::mt19937_64 random_;
  AllocationTrace trace_;
};

}  // namespace

AllocationTrace training_steps(const TrainingShape& shape) { return Program(shape).run(); }

}  // namespace cox::perf
