#pragma once

#include <engine/job.hpp>
#include <engine/progress.hpp>
#include <engine/training_step.hpp>

#include <coxswain/runtime/trace/recording.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace train {

struct RankResult {
  std::vector<float> losses;         ///< of each step, the mean over all samples; of rank 0
  std::vector<StepRecord> times;     ///< of the steps of this attempt; of rank 0
  std::size_t traced_step = 0;       ///< 0: none
  cox::trace::Recording traced;      ///< what the process did in this step
  std::uint64_t parameters = 0;      ///< checksum of all parameters of this rank
  cox::MemoryUsage memory{};         ///< of the device, after the last step; of rank 0
  double evaluation_sum = 0;         ///< sum of the losses of the held-out characters that this rank has evaluated
  std::size_t evaluation_count = 0;  ///< number of these characters
};

/// One device in a training run. All its calls are made on one client thread, whose stream they belong to; the ranks
/// run at the same time, each on a thread of its own.
template <class Backend>
class Rank {
 public:
  using Client = typename Backend::Client;

  Rank(const Job& job, Client client);

  /// Trains from the start of the job to its last step, then evaluates. Blocks. Throws the failures of its stream, as
  /// cox::ServerError, and whatever else ends the run.
  [[nodiscard]] RankResult run();
  /// Waits for the futures of a step in which run() has failed, and takes their failures, which follow from the one
  /// that run() has thrown. To be called once the communicators have been aborted: no future waits for another rank
  /// then.
  void end_step() noexcept;

 private:
  /// A tensor of the state, and whether this rank writes it into checkpoints.
  struct State {
    std::string name;
    cox::Handle memory;
    bool saved;
  };

  void restore();
  void set_state();
  float train(std::size_t step);
  void meet();
  [[nodiscard]] bool is_traced(std::size_t step) const;
  float train_traced(std::size_t step);
  void save(std::size_t step);
  void evaluate();
  [[nodiscard]] std::vector<State> state() const;

  const Job& job_;
  const Client client_;
  const std::size_t rank_;
  TrainingStep<Backend> step_;
  std::optional<cox::Handle> meeting_;  // what ranks of several processes reduce where they meet
  std::optional<typename TrainingStep<Backend>::Queued> queued_;  // the step that this thread waits for
  Progress progress_;
  RankResult result_;
};

}  // namespace train
