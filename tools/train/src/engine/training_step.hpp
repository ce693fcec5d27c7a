#pragma once

#include <engine/backends.hpp>
#include <engine/fault.hpp>
#include <engine/gradient_exchange.hpp>
#include <engine/job.hpp>
#include <engine/kept_tensors.hpp>
#include <engine/optimizer.hpp>
#include <model/model.hpp>

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/client/graph.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace train {

/// The work of one training step on one rank: forward and backward pass, exchange of gradients, update. Queues it on
/// the stream of the calling thread, or captures it once and replays it. One object for each rank and attempt; used by
/// one thread. No call waits for the device, except the capture, which waits for the device thread, and on GPUs the
/// first product of each shape (see MatrixProducts).
template <class Backend>
class TrainingStep {
 public:
  using Client = typename Backend::Client;

  /// What a queued step gives to wait for. Each future throws the failures of the stream.
  struct Queued {
    std::optional<cox::Future<std::vector<cox::Bytes>>> computed;  ///< the backward pass has completed, if known
    std::optional<cox::Future<void>> exchanged;                    ///< the gradients have been exchanged, if known
    std::optional<cox::Future<void>> ready;                        ///< with kept memory: queue_update() may be called
    std::optional<cox::Future<std::vector<cox::Bytes>>> loss;      ///< the step has completed: the mean loss, one float
  };

  /// Allocates all memory. The parameters are undefined, but for kept memory.
  TrainingStep(const Job& job, const Device<Backend>& device, std::size_t rank);

  [[nodiscard]] const Device<Backend>& device() const { return device_; }
  [[nodiscard]] Model<Backend>& model() { return model_; }
  [[nodiscard]] const Model<Backend>& model() const { return model_; }
  [[nodiscard]] const Optimizer<Backend>& optimizer() const { return optimizer_; }
  /// The state, if it outlives the process; else null.
  [[nodiscard]] KeptTensors<Backend>* kept() { return kept_ ? &*kept_ : nullptr; }
  /// The rank before (-1) or after (1) this one in a pipeline.
  [[nodiscard]] cox::DeviceId neighbour(std::ptrdiff_t distance) const;

  /// Uploads what this step needs and queues its work; with kept memory all but the update. Every rank must do so.
  /// `fault`: what is to fail.
  [[nodiscard]] Queued queue(std::size_t step, FaultKind fault);
  /// Queues the update of kept memory. To be called when Queued::ready has completed on all ranks: the state is torn if
  /// some ranks update theirs, and another one has failed before.
  void queue_update(Queued& queued, std::size_t step, FaultKind fault);

 private:
  void upload(std::size_t step);
  void replay(FaultKind fault);
  void enqueue(Queued* queued, FaultKind fault);
  void enqueue_update();
  template <class F>
  [[nodiscard]] cox::Graph<Client> capture(F&& enqueue);
  void enqueue_replica(FaultKind fault);
  void enqueue_stage(FaultKind fault);
  void enqueue_loss(std::size_t slot, std::size_t batch);
  void strike(FaultKind fault);

  const Job& job_;
  const Device<Backend> device_;
  const Client client_;
  const std::size_t rank_;
  std::optional<KeptTensors<Backend>> kept_;
  Model<Backend> model_;
  const std::unique_ptr<GradientExchange> exchange_;
  Optimizer<Backend> optimizer_;
  const cox::Handle loss_;       // of this rank
  const cox::Handle mean_loss_;  // of all ranks
  bool prepared_ = false;        // the step before the capture has been queued
  std::optional<cox::Graph<Client>> graph_;
  // With kept memory the update is a graph of its own: the marks of an update lie between the two.
  bool update_prepared_ = false;
  std::optional<cox::Graph<Client>> update_graph_;
};

}  // namespace train
