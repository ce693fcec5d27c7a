#pragma once

#include <data/text.hpp>
#include <engine/options.hpp>
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
  std::vector<float> losses;      ///< of each step
  std::vector<StepRecord> times;  ///< of the steps since the last failure
  std::size_t traced_step = 0;    ///< 0: none was recorded
  cox::trace::Recording traced;   ///< for options.report_file: what the process did in this step
  double evaluation_loss = 0;
  std::size_t evaluated = 0;             ///< number of held-out characters
  std::vector<std::uint64_t> checksums;  ///< of the parameters of each rank
  cox::MemoryUsage memory{};             ///< of the first device, after the last step
  std::size_t restarts = 0;
  std::size_t checkpoints_written = 0;
  std::size_t checkpoints_failed = 0;

  [[nodiscard]] bool replicas_identical() const;
  /// Whether the mean of the last losses is below the first one.
  [[nodiscard]] bool loss_fell() const;
};

/// Trains on the devices of the options, with a thread for each. After a failure it opens devices and communicators
/// again, goes back to the newest checkpoint, or to the beginning if there is none, and continues. Blocks. Throws what
/// is wrong before the first step, such as a checkpoint of another run.
[[nodiscard]] Outcome run_training(const Options& options, const Text& text, std::uint64_t text_checksum);

}  // namespace train
