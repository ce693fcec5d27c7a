#include <engine/rank.hpp>

#include <coxswain/runtime/trace/trace.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

namespace train {
namespace {

using Clock = std::chrono::steady_clock;

/// Records what the process does, from the construction of this object to take().
class TraceScope {
 public:
  TraceScope() { cox::trace::start(); }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope() {
    if (!taken_) static_cast<void>(cox::trace::stop());
  }

  [[nodiscard]] cox::trace::Recording take() {
    taken_ = true;
    return cox::trace::stop();
  }

 private:
  bool taken_ = false;
};

}  // namespace

template <class Backend>
Rank<Backend>::Rank(const Job& job, Client client)
    : job_(job),
      client_(std::move(client)),
      rank_(job.ranks.rank_of(client_.device_id())),
      step_(job, Device<Backend>(client_, job.options.precision), rank_),
      progress_(rank_ == 0 ? job.options.log_every : 0, job.options.steps,
                job.replicas() * job.options.micro_batches * job.options.batch * job.options.shape.context) {
  if (step_.kept() != nullptr && job_.ranks.spans_processes())
    meeting_ = client_.create(cox::Bytes::zeroed(sizeof(float)));
}

template <class Backend>
RankResult Rank<Backend>::run() {
  restore();
  const std::size_t stop = job_.options.stop_after;
  const std::size_t last = stop == 0 ? job_.options.steps : std::min(stop, job_.options.steps);
  for (std::size_t step = job_.first_step(); step <= last; ++step) {
    const float loss = is_traced(step) ? train_traced(step) : train(step);
    if (progress_.due(step)) progress_.line(step, loss, client_.memory_usage());
    if (job_.writer != nullptr && step % job_.options.checkpoint_every == 0) save(step);
  }
  if (rank_ == 0) result_.memory = client_.memory_usage();
  evaluate();
  for (const cox::Bytes& parameter : client_.read(step_.model().parameters()))
    result_.parameters = checksum(parameter.span(), result_.parameters);
  return std::move(result_);
}

// What kept memory has is used as it is. Else the state is written, which is an update of kept memory.
template <class Backend>
void Rank<Backend>::restore() {
  KeptTensors<Backend>* const kept = step_.kept();
  if (job_.kept_step) {
    kept->load();
    if (rank_ == 0) result_.losses = kept->losses(*job_.kept_step);
  } else {
    if (rank_ == 0 && job_.start != nullptr) result_.losses = job_.start->losses;
    if (kept != nullptr) {
      kept->begin_update();
      kept->clear();
      if (job_.start != nullptr) kept->set_losses(job_.start->losses);
    }
    set_state();
    if (kept != nullptr) {
      kept->store();
      kept->commit(job_.first_step() - 1);
    }
  }
  for (std::size_t i = 0; i < step_.model().list().size(); ++i) step_.model().round(i);
}

// Uploads the initial values, or those of the checkpoint.
template <class Backend>
void Rank<Backend>::set_state() {
  if (job_.start == nullptr) {
    const Model<Backend>& model = step_.model();
    for (std::size_t i = 0; i < model.list().size(); ++i)
      client_.write(model.parameters()[i], cox::Bytes::from_vector(initial_values(model.list()[i], job_.options.seed)));
    return;
  }
  for (const State& tensor : state()) {
    const auto found = job_.start->tensors.find(tensor.name);
    if (found == job_.start->tensors.end()) throw std::runtime_error("the checkpoint has no " + tensor.name);
    client_.write(tensor.memory, found->second.share());
  }
}

// Returns the loss.
template <class Backend>
float Rank<Backend>::train(std::size_t step) {
  const auto begin = Clock::now();
  const FaultKind fault = job_.fault.take(step, rank_, job_.ranks.world_size());
  auto& queued = queued_.emplace(step_.queue(step, fault));
  // All work of the step is queued, but for an update of kept memory; from here on this thread waits.
  StepTimes times;
  if (queued.computed && queued.exchanged) {
    static_cast<void>(std::exchange(queued.computed, {})->get());
    const auto computed = Clock::now();
    std::exchange(queued.exchanged, {})->get();
    times.not_hidden = Clock::now() - computed;
    times.measured = true;
  }
  if (queued.ready) {
    // If one rank has failed, no rank updates its state.
    std::exchange(queued.ready, {})->get();
    meet();
    step_.queue_update(queued, step, fault);
  }
  float loss = 0;
  std::memcpy(&loss, std::exchange(queued.loss, {})->get().front().span().data(), sizeof(loss));
  // A failure in the next step on one rank must not end the update of another one.
  if (step_.kept() != nullptr) meet();
  times.step = Clock::now() - begin;
  progress_.add(times);
  if (rank_ == 0) {
    result_.losses.push_back(loss);
    result_.times.push_back({step, times});
  }
  return loss;
}

// Blocks until all ranks have come here. Throws if one has failed before. Between processes it is a collective: a rank
// that fails aborts its communicators.
template <class Backend>
void Rank<Backend>::meet() {
  if (!meeting_) {
    job_.rendezvous.meet();
    return;
  }
  client_.all_reduce(*meeting_, *meeting_, cox::ElementType::F32, job_.ranks);
  static_cast<void>(client_.read_one(*meeting_));
}

// A future that is dropped before it is ready gives its failures back to the stream when it is: after a sync that was
// queued behind it.
template <class Backend>
void Rank<Backend>::end_step() noexcept {
  if (!queued_) return;
  const auto take = [](auto& future) {
    if (!future) return;
    try {
      static_cast<void>(future->get());
    } catch (...) {  // follows from the first failure
    }
  };
  take(queued_->computed);
  take(queued_->exchanged);
  take(queued_->ready);
  take(queued_->loss);
  queued_.reset();
}

// One step is recorded for the report: the fifth one of an attempt, when a captured step is being replayed.
template <class Backend>
bool Rank<Backend>::is_traced(std::size_t step) const {
  return !job_.options.report_file.empty() && step == job_.first_step() + 4;
}

// The trace starts before any rank of this process queues work of the step, since work gets its name when it is queued,
// and ends after the work of all of them. Rank 0 records, unless the process is being traced already. The loss is ready
// before the last collectives of a step with a sharded optimizer: hence the syncs.
template <class Backend>
float Rank<Backend>::train_traced(std::size_t step) {
  std::optional<TraceScope> trace;
  client_.sync().get();
  job_.rendezvous.meet();
  if (rank_ == 0 && !cox::trace::enabled()) trace.emplace();
  job_.rendezvous.meet();
  const float loss = train(step);
  client_.sync().get();
  job_.rendezvous.meet();
  if (trace) {
    result_.traced_step = step;
    result_.traced = trace->take();
  }
  return loss;
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
  Model<Backend>& model = step_.model();
  const Stage& part = model.stage();
  const cox::ElementType type = step_.device().element_type();
  const std::size_t samples = job_.options.batch;
  const std::size_t batches = std::min(job_.text.held_out_windows(), job_.options.evaluation_windows) / samples;
  for (std::size_t batch = job_.replica_of(rank_); batch < batches; batch += job_.replicas()) {
    model.set_batch(0, job_.text.held_out(batch * samples, samples));
    if (!part.embeds) client_.receive(model.slot(0).input, type, step_.neighbour(-1));
    model.forward(0, 0);
    if (!part.predicts) {
      client_.send(model.output(0), type, step_.neighbour(1));
      continue;
    }
    model.loss(0, 0, 1.0F);
    for (const float loss : client_.read_one(model.slot(0).losses).template to_vector<float>())
      result_.evaluation_sum += static_cast<double>(loss);
    result_.evaluation_count += model.rows();
  }
  client_.sync().get();
}

// Replicas write their parameters and moments once, from rank 0; shards and stages each write what they own.
template <class Backend>
std::vector<typename Rank<Backend>::State> Rank<Backend>::state() const {
  const Model<Backend>& model = step_.model();
  const Optimizer<Backend>& optimizer = step_.optimizer();
  const bool sharded = job_.options.layout == Layout::Sharded;
  const bool first = rank_ == 0 || job_.pipeline();
  const std::string suffix = sharded ? "/" + std::to_string(rank_) : "";
  std::vector<State> tensors;
  for (std::size_t i = 0; i < model.list().size(); ++i) {
    const std::string& name = model.list()[i].name;
    tensors.push_back({name, model.parameters()[i], first});
    tensors.push_back({name + ".first_moment" + suffix, optimizer.moments().first[i], first || sharded});
    tensors.push_back({name + ".second_moment" + suffix, optimizer.moments().second[i], first || sharded});
  }
  return tensors;
}

template class Rank<HostBackend>;
#ifdef TRAIN_CUDA
template class Rank<CudaBackend>;
#endif

}  // namespace train
