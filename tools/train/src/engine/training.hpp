#pragma once

#include <data/text.hpp>
#include <engine/options.hpp>
#include <engine/processes.hpp>
#include <engine/progress.hpp>

#include <coxswain/runtime/handle/memory_usage.hpp>
#include <coxswain/runtime/trace/recording.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace train {

/// How a training run has ended.
struct Outcome {
  bool completed = false;         ///< false: more failures than options.restarts
  bool needs_new_world = false;   ///< not completed: training can continue if all processes are started again
  std::vector<float> losses;      ///< of each step; in process 0
  bool loss_fell = false;         ///< whether the mean of the last losses is below the first one
  std::vector<StepRecord> times;  ///< of the steps since the last failure; in process 0
  std::size_t traced_step = 0;    ///< 0: none was recorded
  cox::trace::Recording traced;   ///< for options.report_file: what process 0 did in this step
  double evaluation_loss = 0;
  std::size_t evaluated = 0;             ///< number of held-out characters
  std::vector<std::uint64_t> checksums;  ///< of the parameters of each rank, of all processes
  cox::MemoryUsage memory{};             ///< of the first device, after the last step
  std::size_t restarts = 0;
  std::size_t checkpoints_written = 0;
  std::size_t checkpoints_failed = 0;

  [[nodiscard]] bool replicas_identical() const;
};

/// Trains on the devices of all processes, with a thread for each device of this one. After a failure it opens devices
/// and communicators again, goes back to the newest checkpoint, or to the beginning if there is none, and continues; in
/// a world of several processes it ends instead, since these must all go back together. All processes get the same
/// outcome, but for what is said to be in process 0. Blocks. Throws what is wrong before the first step, such as a
/// checkpoint of another run.
[[nodiscard]] Outcome run_training(const Options& options, const Text& text, std::uint64_t text_checksum,
                                   const Processes& processes);

}  // namespace train
