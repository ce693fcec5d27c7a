#pragma once

#include <checkpoint/checkpoint.hpp>
#include <checkpoint/checkpoint_writer.hpp>
#include <data/text.hpp>
#include <engine/device.hpp>
#include <engine/fault.hpp>
#include <engine/gradient_exchange.hpp>
#include <engine/optimizer.hpp>
#include <engine/options.hpp>
#include <engine/progress.hpp>
#include <model/model.hpp>

#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/client/graph.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/trace/recording.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace train {

/// What the ranks of an attempt share. Lives longer than all of them.
struct Job {
  const Options& options;
  const Text& text;
  const cox::CommunicationId& ranks;
  const Checkpoint* start;   ///< null: from the beginning
  CheckpointWriter* writer;  ///< null: no checkpoints
  Fault& fault;
  FailureSignal& failure;
};

struct RankResult {
  std::vector<float> losses;         ///< of each step, the mean over all samples; of rank 0
  std::vector<StepRecord> times;     ///< of the steps of this attempt; of rank 0
  std::size_t traced_step = 0;       ///< 0: none
  cox::trace::Recording traced;      ///< what the process did in this step
  std::uint64_t parameters = 0;      ///< checksum of all parameters of this rank
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

 private:
  /// The results of a step that is queued.
  struct Queued {
    std::optional<cox::Future<std::vector<cox::Bytes>>> computed;  // ready when the backward pass has completed
    std::optional<cox::Future<void>> exchanged;                    // ready when the gradients have been exchanged
  };
  /// A tensor of the state, and whether this rank writes it into checkpoints.
  struct State {
    std::string name;
    cox::Handle memory;
    bool saved;
  };

  void restore();
  void trace_begin(std::size_t step);
  void trace_end(std::size_t step);
  float train_step(std::size_t step);
  void upload(std::size_t step);
  Queued run_captured(FaultKind fault);
  Queued enqueue(bool capturing, FaultKind fault);
  void enqueue_replica(FaultKind fault);
  void enqueue_stage(FaultKind fault);
  void queue_loss(std::size_t slot, std::size_t batch);
  void save(std::size_t step);
  void evaluate();
  void strike(FaultKind fault);

  [[nodiscard]] std::vector<State> state() const;
  [[nodiscard]] bool pipeline() const { return job_.options.layout == Layout::Pipeline; }
  [[nodiscard]] cox::DeviceId neighbour(std::ptrdiff_t distance) const;
  [[nodiscard]] Stage stage() const;

  const Job& job_;
  const Client client_;
  const std::size_t rank_;
  const std::size_t ranks_;
  const Device<Backend> device_;
  Model<Backend> model_;
  const std::unique_ptr<GradientExchange> exchange_;
  Optimizer<Backend> optimizer_;
  const cox::Handle loss_;       // of this rank
  const cox::Handle mean_loss_;  // of all ranks
  bool warmed_up_ = false;       // a captured step has run once
  std::optional<cox::Graph<Client>> graph_;
  Progress progress_;
  RankResult result_;
};

}  // namespace train
