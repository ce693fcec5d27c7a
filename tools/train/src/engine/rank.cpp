#include <engine/rank.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/trace/trace.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace train {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

template <class Backend>
Rank<Backend>::Rank(const Job& job, Client client)
    : job_(job),
      client_(std::move(client)),
      rank_(job.ranks.rank_of(client_.device_id())),
      ranks_(job.ranks.world_size()),
      device_(client_),
      model_(device_, job.options.shape, stage(), job.options.batch, job.options.micro_batches,
             pipeline() ? job.options.micro_batches : 1),
      exchange_(make_gradient_exchange(device_, model_, job.ranks, job.options)),
      optimizer_(device_, exchange_->slices(), job.options.optimizer,
                 job.options.layout == Layout::Replicated ? std::nullopt : std::optional(job.ranks)),
      loss_(device_.floats(1)),
      mean_loss_(device_.floats(1)),
      progress_(rank_ == 0 ? job.options.log_every : 0, job.options.steps,
                job.options.batch * job.options.micro_batches * job.options.shape.context * (pipeline() ? 1 : ranks_)) {
}

template <class Backend>
RankResult Rank<Backend>::run() {
  restore();
  const std::size_t first = job_.start == nullptr ? 1 : job_.start->step + 1;
  const std::size_t stop = job_.options.stop_after;
  const std::size_t last = stop == 0 ? job_.options.steps : std::min(stop, job_.options.steps);
  for (std::size_t step = first; step <= last; ++step) {
    trace_begin(step);
    const float loss = train_step(step);
    trace_end(step);
    if (rank_ == 0) result_.losses.push_back(loss);
    if (progress_.due(step)) progress_.line(step, loss, client_.memory_usage());
    if (job_.writer != nullptr && step % job_.options.checkpoint_every == 0) save(step);
  }
  evaluate();
  for (const cox::Bytes& parameter : client_.read(model_.parameters()))
    result_.parameters = checksum(parameter.span(), result_.parameters);
  return std::move(result_);
}

// Records one step for the report: the fifth one of this attempt, when a captured step is being replayed.
template <class Backend>
void Rank<Backend>::trace_begin(std::size_t step) {
  if (rank_ != 0 || job_.options.report_file.empty() || result_.times.size() != 4 || cox::trace::enabled()) return;
  cox::trace::start();
  result_.traced_step = step;
}

template <class Backend>
void Rank<Backend>::trace_end(std::size_t step) {
  if (result_.traced_step == step) result_.traced = cox::trace::stop();
}

// Uploads the initial values, or those of the checkpoint.
template <class Backend>
void Rank<Backend>::restore() {
  if (job_.start == nullptr) {
    for (std::size_t i = 0; i < model_.list().size(); ++i)
      model_.set_parameter(i, cox::Bytes::from_vector(initial_values(model_.list()[i], job_.options.seed)));
    return;
  }
  if (rank_ == 0) result_.losses = job_.start->losses;
  for (const State& tensor : state()) {
    const auto found = job_.start->tensors.find(tensor.name);
    if (found == job_.start->tensors.end()) throw std::runtime_error("the checkpoint has no " + tensor.name);
    client_.write(tensor.memory, found->second.share());
  }
}

template <class Backend>
float Rank<Backend>::train_step(std::size_t step) {
  const auto begin = Clock::now();
  upload(step);
  const FaultKind fault = job_.fault.take(step, rank_, ranks_);
  Queued queued = job_.options.captured ? run_captured(fault) : enqueue(false, fault);
  auto loss = client_.read_async(std::vector{mean_loss_});

  // All work of the step is queued; from here on this thread waits.
  StepTimes times;
  if (queued.computed) {
    static_cast<void>(queued.computed->get());
    const auto computed = Clock::now();
    if (queued.exchanged) {
      queued.exchanged->get();
      times.not_hidden = Clock::now() - computed;
      times.measured = true;
    }
  }
  float value = 0;
  std::memcpy(&value, loss.get().front().span().data(), sizeof(value));
  times.step = Clock::now() - begin;
  progress_.add(times);
  if (rank_ == 0) result_.times.push_back({step, times});
  return value;
}

// What changes from step to step. A captured step reads it from the same memory.
template <class Backend>
void Rank<Backend>::upload(std::size_t step) {
  const std::size_t samples = job_.options.batch;
  const std::size_t replica = pipeline() ? 0 : rank_;
  for (std::size_t batch = 0; batch < job_.options.micro_batches; ++batch) {
    const std::size_t first = (replica * job_.options.micro_batches + batch) * samples;
    model_.set_batch(batch, job_.text.samples(job_.options.seed, step, first, samples));
  }
  optimizer_.set_step(step, job_.options.steps);
}

// The first step runs as usual and shows the library what the capture will need; the second one is recorded; from then
// on each step is a replay.
template <class Backend>
typename Rank<Backend>::Queued Rank<Backend>::run_captured(FaultKind fault) {
  strike(fault);
  if (!warmed_up_) {
    client_.graph_prepare();
    warmed_up_ = true;
    return enqueue(false, FaultKind::None);
  }
  if (!graph_) {
    client_.graph_start_capture();
    static_cast<void>(enqueue(true, FaultKind::None));
    graph_ = client_.graph_stop_capture();
  }
  graph_->replay();
  return {};
}

template <class Backend>
typename Rank<Backend>::Queued Rank<Backend>::enqueue(bool capturing, FaultKind fault) {
  Queued queued;
  if (pipeline()) {
    enqueue_stage(fault);
  } else {
    enqueue_replica(fault);
    if (!capturing) queued.computed = client_.read_async(std::vector{loss_});
  }
  if (pipeline()) {
    client_.broadcast(loss_, mean_loss_, cox::ElementType::F32, job_.ranks, job_.ranks.devices().back());
  } else {
    client_.all_reduce(loss_, mean_loss_, cox::ElementType::F32, job_.ranks, cox::ReduceOperation::Mean);
  }
  queued.exchanged = exchange_->finish(capturing);
  optimizer_.update();
  exchange_->updated();
  return queued;
}

template <class Backend>
void Rank<Backend>::enqueue_replica(FaultKind fault) {
  const std::size_t batches = job_.options.micro_batches;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    const bool last = batch + 1 == batches;
    model_.forward(0, batch);
    queue_loss(0, batch);
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
void Rank<Backend>::enqueue_stage(FaultKind fault) {
  constexpr cox::ElementType f32 = cox::ElementType::F32;
  const Stage& part = model_.stage();
  const std::size_t batches = job_.options.micro_batches;
  const auto backward = [&](std::size_t batch) {
    if (!part.predicts) client_.receive(model_.scratch().d_residual, f32, neighbour(1));
    model_.backward(batch, batch, batch > 0, [&](std::size_t index) {
      if (batch + 1 == batches && index == model_.list().size() / 2) strike(fault);
    });
    if (!part.embeds) client_.send(model_.scratch().d_residual, f32, neighbour(-1));
  };
  for (std::size_t batch = 0; batch < batches; ++batch) {
    if (!part.embeds) client_.receive(model_.slot(batch).input, f32, neighbour(-1));
    model_.forward(batch, batch);
    if (part.predicts) {
      queue_loss(batch, batch);
      backward(batch);
    } else {
      client_.send(model_.output(batch), f32, neighbour(1));
    }
  }
  if (!part.predicts)
    for (std::size_t batch = 0; batch < batches; ++batch) backward(batch);
}

// The loss of the step is the mean over the rows of all its micro-batches.
template <class Backend>
void Rank<Backend>::queue_loss(std::size_t slot, std::size_t batch) {
  const float scale = 1.0F / static_cast<float>(model_.rows() * job_.options.micro_batches);
  model_.loss(slot, batch, scale);
  device_.launch(
      KernelId::Mean, 1,
      Launch().sum(loss_, batch > 0).in(model_.slot(slot).losses).size(model_.rows()).number(scale).flag(batch > 0));
}

// The downloads are queued behind this step and before the next one, whose kernels wait for them where they overwrite
// the same memory; this thread does not wait.
template <class Backend>
void Rank<Backend>::save(std::size_t step) {
  CheckpointWriter::Part part;
  std::vector<cox::Handle> memory;
  for (State& tensor : state()) {
    if (!tensor.saved) continue;
    part.names.push_back(std::move(tensor.name));
    memory.push_back(std::move(tensor.memory));
  }
  if (memory.empty()) return;
  part.contents = client_.read_async(memory);
  job_.writer->add(step, std::move(part));
  if (rank_ == 0) job_.writer->add_losses(step, result_.losses);
}

// Each rank evaluates its share of the batches; a pipeline evaluates all of them together.
template <class Backend>
void Rank<Backend>::evaluate() {
  constexpr cox::ElementType f32 = cox::ElementType::F32;
  const Stage& part = model_.stage();
  const std::size_t samples = job_.options.batch;
  const std::size_t batches = std::min(job_.text.held_out_windows(), job_.options.evaluation_windows) / samples;
  const std::size_t first = pipeline() ? 0 : rank_;
  const std::size_t step = pipeline() ? 1 : ranks_;
  for (std::size_t batch = first; batch < batches; batch += step) {
    model_.set_batch(0, job_.text.held_out(batch * samples, samples));
    if (!part.embeds) client_.receive(model_.slot(0).input, f32, neighbour(-1));
    model_.forward(0, 0);
    if (!part.predicts) {
      client_.send(model_.output(0), f32, neighbour(1));
      continue;
    }
    model_.loss(0, 0, 1.0F);
    for (const float loss : client_.read_one(model_.slot(0).losses).template to_vector<float>())
      result_.evaluation_sum += static_cast<double>(loss);
    result_.evaluation_count += model_.rows();
  }
  client_.sync().get();
}

template <class Backend>
void Rank<Backend>::strike(FaultKind fault) {
  const cox::Handle& d_residual = model_.scratch().d_residual;
  switch (fault) {
    case FaultKind::None:
    case FaultKind::Random: return;
    case FaultKind::Kernel:
      // The gradient of the residual stream is poisoned, and with it all gradients that are computed from it.
      device_.launch(KernelId::Fault, 1, Launch().inout(d_residual));
      return;
    case FaultKind::Memory: {
      // All memory of the device, of which a part is in use. The call does not fail; the work that uses it does.
      const cox::Handle huge = client_.empty(client_.properties().memory.capacity);
      device_.launch(KernelId::Add, 1, Launch().inout(d_residual).in(huge).in(huge).size(0));
      return;
    }
    case FaultKind::Thread: throw std::runtime_error("injected: the client thread failed");
    case FaultKind::Shutdown: cox::shutdown(client_.device_id()); return;
    case FaultKind::Missing: job_.failure.wait(); throw std::runtime_error("injected: this rank did not come");
    case FaultKind::Crash: std::raise(SIGKILL); return;
    case FaultKind::Diverge:
      model_.set_parameter(0, cox::Bytes::zeroed(model_.list()[0].elements * sizeof(float)));
      return;
  }
}

// Replicas write their parameters and moments once, from rank 0; shards and stages each write what they own.
template <class Backend>
std::vector<typename Rank<Backend>::State> Rank<Backend>::state() const {
  const bool sharded = job_.options.layout == Layout::Sharded;
  const bool first = rank_ == 0 || pipeline();
  const std::string suffix = sharded ? "/" + std::to_string(rank_) : "";
  std::vector<State> tensors;
  for (std::size_t i = 0; i < model_.list().size(); ++i) {
    const std::string& name = model_.list()[i].name;
    tensors.push_back({name, model_.parameters()[i], first});
    tensors.push_back({name + ".first_moment" + suffix, optimizer_.first_moments()[i], first || sharded});
    tensors.push_back({name + ".second_moment" + suffix, optimizer_.second_moments()[i], first || sharded});
  }
  return tensors;
}

template <class Backend>
cox::DeviceId Rank<Backend>::neighbour(std::ptrdiff_t distance) const {
  return job_.ranks.devices()[static_cast<std::size_t>(static_cast<std::ptrdiff_t>(rank_) + distance)];
}

template <class Backend>
Stage Rank<Backend>::stage() const {
  return pipeline() ? stage_of(job_.options.shape, rank_, ranks_) : stage_of(job_.options.shape, 0, 1);
}

template class Rank<HostBackend>;

}  // namespace train
