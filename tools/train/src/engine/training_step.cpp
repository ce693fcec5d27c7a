#include <engine/training_step.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>

#include <csignal>
#include <stdexcept>
#include <utility>

namespace train {

namespace {

template <class Backend>
std::optional<KeptTensors<Backend>> kept_tensors(const Job& job, const Device<Backend>& device, std::size_t rank) {
  if (job.kept == nullptr) return std::nullopt;
  return std::optional<KeptTensors<Backend>>(std::in_place, *job.kept, device, job.kept_layout(rank));
}

}  // namespace

template <class Backend>
TrainingStep<Backend>::TrainingStep(const Job& job, const Device<Backend>& device, std::size_t rank)
    : job_(job),
      device_(device),
      client_(device.client()),
      rank_(rank),
      kept_(kept_tensors(job, device_, rank)),
      model_(device_, job.options.shape, job.stage_of_rank(rank), job.options.batch, job.options.micro_batches,
             job.pipeline() ? job.options.micro_batches : 1, kept_ ? kept_->parameters() : std::vector<cox::Handle>()),
      exchange_(make_gradient_exchange(device_, model_, job.ranks, job.options)),
      optimizer_(device_, exchange_->slices(), job.options.optimizer,
                 job.options.layout == Layout::Replicated ? std::nullopt : std::optional(job.ranks),
                 exchange_->blocks(), kept_ ? std::optional(kept_->moments()) : std::nullopt),
      loss_(device_.floats(1)),
      mean_loss_(device_.floats(1)) {}

template <class Backend>
typename TrainingStep<Backend>::Queued TrainingStep<Backend>::queue(std::size_t step, FaultKind fault) {
  Queued queued;
  upload(step);
  if (!job_.options.captured) {
    enqueue(&queued, fault);
  } else if (!prepared_) {
    strike(fault);
    client_.graph_prepare();
    enqueue(&queued, FaultKind::None);
    prepared_ = true;
  } else {
    replay(fault);
  }
  if (kept_) {
    queued.ready = client_.sync();
  } else {
    queued.loss = client_.read_async(std::vector{mean_loss_});
  }
  return queued;
}

template <class Backend>
void TrainingStep<Backend>::queue_update(Queued& queued, std::size_t step, FaultKind fault) {
  kept_->begin_update();
  if (!graph_) {  // not captured, or the other graph is still being prepared
    enqueue_update();
  } else if (!update_prepared_) {
    client_.graph_prepare();
    enqueue_update();
    update_prepared_ = true;
  } else {
    if (!update_graph_) update_graph_ = capture([this] { enqueue_update(); });
    update_graph_->replay();
  }
  kept_->set_loss(step, mean_loss_);
  kept_->store();
  if (fault == FaultKind::Update) {
    client_.sync().get();
    std::raise(SIGKILL);
  }
  kept_->commit(step);
  queued.loss = client_.read_async(std::vector{mean_loss_});
}

// What changes from step to step. A captured step reads it from the same memory.
template <class Backend>
void TrainingStep<Backend>::upload(std::size_t step) {
  const std::size_t samples = job_.options.batch;
  const std::size_t replica = job_.replica_of(rank_);
  for (std::size_t batch = 0; batch < job_.options.micro_batches; ++batch) {
    const std::size_t first = (replica * job_.options.micro_batches + batch) * samples;
    model_.set_batch(batch, job_.text.samples(job_.options.seed, step, first, samples));
  }
  optimizer_.set_step(step, job_.options.steps);
}

// The first step of an attempt runs as usual and shows the library what the capture will need; the second one is
// recorded; from then on each step is a replay.
template <class Backend>
void TrainingStep<Backend>::replay(FaultKind fault) {
  if (!graph_) graph_ = capture([this] { enqueue(nullptr, FaultKind::None); });
  strike(fault);
  graph_->replay();
}

template <class Backend>
template <class F>
cox::Graph<typename Backend::Client> TrainingStep<Backend>::capture(F&& enqueue) {
  client_.graph_start_capture();
  enqueue();
  return client_.graph_stop_capture();
}

// `queued`: null in a capture, whose operations have no futures.
template <class Backend>
void TrainingStep<Backend>::enqueue(Queued* queued, FaultKind fault) {
  if (job_.pipeline()) {
    enqueue_stage(fault);
    client_.broadcast(loss_, mean_loss_, cox::ElementType::F32, job_.ranks, job_.ranks.devices().back());
  } else {
    enqueue_replica(fault);
    if (queued != nullptr) queued->computed = client_.read_async(std::vector{loss_});
    client_.all_reduce(loss_, mean_loss_, cox::ElementType::F32, job_.ranks, cox::ReduceOperation::Mean);
  }
  auto exchanged = exchange_->finish(queued == nullptr);
  if (queued != nullptr) queued->exchanged = std::move(exchanged);
  optimizer_.clip();
  if (!kept_) enqueue_update();
}

template <class Backend>
void TrainingStep<Backend>::enqueue_update() {
  optimizer_.update();
  exchange_->updated();
}

template <class Backend>
void TrainingStep<Backend>::enqueue_replica(FaultKind fault) {
  const std::size_t batches = job_.options.micro_batches;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    const bool last = batch + 1 == batches;
    model_.forward(0, batch);
    enqueue_loss(0, batch);
    model_.backward(0, batch, batch > 0, [&](std::size_t index) {
      if (!last) return;
      exchange_->add(index);
      if (index == model_.list().size() / 2) strike(fault);
    });
  }
}

// All forward passes, then all backward passes; the last stage alternates. The activations of all micro-batches are
// kept.
template <class Backend>
void TrainingStep<Backend>::enqueue_stage(FaultKind fault) {
  const cox::ElementType type = device_.element_type();
  const Stage& part = model_.stage();
  const std::size_t batches = job_.options.micro_batches;
  const auto backward = [&](std::size_t batch) {
    if (!part.predicts) client_.receive(model_.scratch().d_residual, type, neighbour(1));
    model_.backward(batch, batch, batch > 0, [&](std::size_t index) {
      if (batch + 1 == batches && index == model_.list().size() / 2) strike(fault);
    });
    if (!part.embeds) client_.send(model_.scratch().d_residual, type, neighbour(-1));
  };
  for (std::size_t batch = 0; batch < batches; ++batch) {
    if (!part.embeds) client_.receive(model_.slot(batch).input, type, neighbour(-1));
    model_.forward(batch, batch);
    if (part.predicts) {
      enqueue_loss(batch, batch);
      backward(batch);
    } else {
      client_.send(model_.output(batch), type, neighbour(1));
    }
  }
  if (!part.predicts)
    for (std::size_t batch = 0; batch < batches; ++batch) backward(batch);
}

// The loss of the step is the mean over the rows of all its micro-batches.
template <class Backend>
void TrainingStep<Backend>::enqueue_loss(std::size_t slot, std::size_t batch) {
  const float scale = 1.0F / static_cast<float>(model_.rows() * job_.options.micro_batches);
  model_.loss(slot, batch, scale);
  device_.launch(
      KernelId::Mean, {},
      Launch().sum(loss_, batch > 0).in(model_.slot(slot).losses).size(model_.rows()).number(scale).flag(batch > 0));
}

template <class Backend>
void TrainingStep<Backend>::strike(FaultKind fault) {
  const cox::Handle& d_residual = model_.scratch().d_residual;
  switch (fault) {
    case FaultKind::None:
    case FaultKind::Random:
    case FaultKind::Update:
    case FaultKind::Kill:
    case FaultKind::Trap:
    case FaultKind::Address:
    case FaultKind::Assert: return;
    case FaultKind::Kernel:
      // The gradient of the residual stream is poisoned, and with it all gradients that are computed from it.
      device_.launch(KernelId::Fault, {}, Launch().inout(d_residual));
      return;
    case FaultKind::Memory: {
      // All memory of the device, of which a part is in use. The call does not fail; the work that uses it does.
      const cox::Handle huge = client_.empty(client_.properties().memory.capacity);
      device_.launch(KernelId::Add, {}, Launch().inout(d_residual).in(huge).in(huge).size(0));
      return;
    }
    case FaultKind::Gpu: device_.launch(KernelId::GpuFault, {}, Launch().inout(d_residual).size(1)); return;
    case FaultKind::Thread: throw std::runtime_error("injected: the client thread failed");
    case FaultKind::Shutdown: cox::shutdown(client_.device_id()); return;
    case FaultKind::Missing:
      job_.rendezvous.wait_for_failure();
      throw std::runtime_error("injected: this rank did not come");
    case FaultKind::Crash: std::raise(SIGKILL); return;
    case FaultKind::Diverge:
      model_.set_parameter(0, cox::Bytes::zeroed(model_.list()[0].elements * sizeof(float)));
      return;
  }
}

template <class Backend>
cox::DeviceId TrainingStep<Backend>::neighbour(std::ptrdiff_t distance) const {
  return job_.ranks.devices()[static_cast<std::size_t>(static_cast<std::ptrdiff_t>(rank_) + distance)];
}

template class TrainingStep<HostBackend>;
#ifdef TRAIN_CUDA
template class TrainingStep<CudaBackend>;
#endif

}  // namespace train
