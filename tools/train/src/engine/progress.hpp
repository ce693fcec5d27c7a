#pragma once

#include <coxswain/runtime/handle/memory_usage.hpp>

#include <chrono>
#include <cstddef>

namespace train {

/// What a step took.
struct StepTimes {
  std::chrono::duration<double> step{0};        ///< from its first call to its loss
  std::chrono::duration<double> not_hidden{0};  ///< from the end of the backward pass to the end of the exchange
  bool measured = false;                        ///< whether `not_hidden` is known; not for a captured step
};

struct StepRecord {
  std::size_t step;
  StepTimes times;
};

/// Prints progress lines: loss, rate, times and memory, as means over the steps since the line before.
class Progress {
 public:
  /// `every`: steps from one line to the next; 0: no lines. `tokens`: of one step, on all devices together.
  Progress(std::size_t every, std::size_t steps, std::size_t tokens) : every_(every), steps_(steps), tokens_(tokens) {}

  /// Whether line() is to be called after this step.
  [[nodiscard]] bool due(std::size_t step) const {
    return every_ != 0 && (step % every_ == 0 || step == steps_ || step == 1);
  }
  void add(const StepTimes& times);
  void line(std::size_t step, float loss, const cox::MemoryUsage& memory);

 private:
  const std::size_t every_;
  const std::size_t steps_;
  const std::size_t tokens_;
  std::size_t count_ = 0;
  StepTimes sum_;
};

}  // namespace train
