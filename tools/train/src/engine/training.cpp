#include <engine/backends.hpp>
#include <engine/devices.hpp>
#include <engine/failure.hpp>
#include <engine/kept_run.hpp>
#include <engine/rank.hpp>
#include <engine/training.hpp>

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#ifdef TRAIN_CUDA
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#endif

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

namespace train {
namespace {

/// The communicators of a run: that of all ranks, and for a pipeline those of neighbours, on which they send and
/// receive.
std::vector<cox::CommunicationId> communicators(const Options& options, const cox::CommunicationId& ranks) {
  std::vector<cox::CommunicationId> all{ranks};
  if (options.layout == Layout::Pipeline && ranks.world_size() > 2)
    for (std::size_t i = 1; i < ranks.world_size(); ++i) all.push_back({ranks.devices()[i - 1], ranks.devices()[i]});
  return all;
}

/// Ranks that run at the same time, from where the job begins to the last step or to a failure.
template <class Backend>
class Attempt {
 public:
  using Client = typename Backend::Client;

  explicit Attempt(const Job& job) : job_(job), results_(job.ranks.world_size()), errors_(job.ranks.world_size()) {}

  /// Blocks until all ranks have ended. Returns whether all have completed the last step.
  bool run() {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < results_.size(); ++i) threads.emplace_back([this, i] { run_rank(i); });
    for (std::thread& thread : threads) thread.join();
    return std::ranges::all_of(errors_, [](const std::exception_ptr& error) { return error == nullptr; });
  }

  [[nodiscard]] std::vector<RankResult>& results() { return results_; }
  [[nodiscard]] const std::vector<std::exception_ptr>& errors() const { return errors_; }

 private:
  void run_rank(std::size_t i) {
    std::optional<Client> client;
    std::optional<Rank<Backend>> rank;
    try {
      client = Client::load(job_.ranks.devices()[i]);
      results_[i] = rank.emplace(job_, *client).run();
    } catch (...) {
      errors_[i] = std::current_exception();
      if (client) ignore_failure([&] { leave(*client, job_, errors_[i], rank); });
      job_.rendezvous.fail();
    }
  }

  // Has the other ranks fail at once, with the cause, instead of waiting for this one. Then takes the failures that are
  // still with the stream: they follow from the first one, and would otherwise be logged when the device closes.
  static void leave(const Client& client, const Job& job, const std::exception_ptr& cause,
                    std::optional<Rank<Backend>>& rank) {
    for (const cox::CommunicationId& ranks : communicators(job.options, job.ranks))
      if (std::ranges::find(ranks.devices(), client.device_id()) != ranks.devices().end())
        ignore_failure([&] { client.abort_collective(ranks, cause); });
    if (rank) rank->end_step();
    rank.reset();
    ignore_failure([&] { client.sync().get(); });
  }
  // The device, or another device of the communicator, may be closed; memory may be exhausted.
  template <class F>
  static void ignore_failure(F&& f) {
    try {
      f();
    } catch (...) {  // the first failure is reported
    }
  }

  const Job& job_;
  std::vector<RankResult> results_;
  std::vector<std::exception_ptr> errors_;
};

void print_failures(const std::vector<std::exception_ptr>& errors) {
  for (std::size_t i = 0; i < errors.size(); ++i)
    if (errors[i] != nullptr)
      std::fprintf(stderr, "rank %zu failed (%s):\n%s\n", i, failure_kinds(errors[i]).c_str(),
                   cox::error_chain(errors[i]).c_str());
}

/// Opens the devices that were shut down, and replaces communicators that are no longer usable.
template <class Client>
void reopen(const Options& options, const cox::CommunicationId& ranks) {
  std::vector<Client> clients;
  for (const cox::DeviceId device : ranks.devices()) clients.push_back(Client::load(device));
  for (const cox::CommunicationId& communicator : communicators(options, ranks))
    clients[ranks.rank_of(communicator.devices().front())].ensure_init_collective(communicator);
}

void collect(Outcome& outcome, std::vector<RankResult>& results) {
  outcome.completed = true;
  outcome.losses = std::move(results.front().losses);
  outcome.times = std::move(results.front().times);
  outcome.memory = results.front().memory;
  outcome.traced_step = results.front().traced_step;
  outcome.traced = std::move(results.front().traced);
  for (const RankResult& result : results) {
    outcome.evaluation_loss += result.evaluation_sum;
    outcome.evaluated += result.evaluation_count;
    outcome.checksums.push_back(result.parameters);
  }
  outcome.evaluation_loss /= static_cast<double>(std::max<std::size_t>(1, outcome.evaluated));
}

}  // namespace

bool Outcome::replicas_identical() const {
  return std::ranges::all_of(checksums, [this](std::uint64_t sum) { return sum == checksums.front(); });
}

bool Outcome::loss_fell() const {
  if (losses.size() < 2) return false;
  const std::size_t count = std::min<std::size_t>(10, losses.size() / 2);
  float sum = 0;
  for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<float>(count) < losses.front();
}

namespace {

// After a GPU fault the process cannot use any GPU.
bool can_continue(const Options& options) {
#ifdef TRAIN_CUDA
  if (options.device_type == cuda_type) return cox::gpu_fault() == nullptr;
#endif
  static_cast<void>(options);
  return true;
}

void require_new_run(const Options& options, bool continues) {
  if (!continues && !options.checkpoints.empty() && has_checkpoints(options.checkpoints))
    throw std::runtime_error(options.checkpoints.string() + " has checkpoints: continue with --resume, or remove them");
}

// Begins with the contents of kept memory, if they can be used.
template <class Client>
void open_kept(KeptRun& kept, Job& job) {
  kept.open<Client>();
  job.kept = &kept.set();
  job.kept_step = kept.step();
  std::printf("kept memory: %s\n", kept.to_string().c_str());
}

// Failures are a property of handles, and kept memory is opened again only when no work uses it: so devices end, too.
void close(const cox::CommunicationId& ranks) {
  for (const cox::DeviceId device : ranks.devices()) cox::shutdown(device);
}

template <class Backend>
Outcome run_on(const Options& options, const Text& text, std::uint64_t text_checksum) {
  const cox::CommunicationId ranks = devices_of(options);
  const std::string print = fingerprint(options, text_checksum);
  const std::size_t parts = options.layout == Layout::Replicated ? 1 : ranks.world_size();
  Fault fault(options.fault, options.fault_step, std::random_device()());
  Outcome outcome;
  if (options.fault == FaultKind::Kill) kill_at_random(std::chrono::milliseconds(options.fault_step));
  bool continues = options.resume;
  while (true) {
    Rendezvous rendezvous(ranks.world_size());
    Job job{options, text, ranks, fault, rendezvous};
    std::optional<KeptRun> kept;
    if (options.keep != Keep::No) {
      open_kept<typename Backend::Client>(kept.emplace(job, print), job);
      continues = continues || kept->is_used();
    }
    require_new_run(options, continues);
    std::optional<Checkpoint> checkpoint;
    if (continues && !job.kept_step && !options.checkpoints.empty())
      checkpoint = newest_checkpoint(options.checkpoints, print);
    if (checkpoint) job.start = &*checkpoint;
    if (continues) std::printf("continues after step %zu\n", job.first_step() - 1);
    std::optional<CheckpointWriter> writer;
    if (!options.checkpoints.empty()) job.writer = &writer.emplace(options.checkpoints, print, parts);
    Attempt<Backend> attempt(job);
    const bool completed = attempt.run();
    if (writer) {
      writer->finish();
      outcome.checkpoints_written += writer->written();
      outcome.checkpoints_failed += writer->not_written() + (completed ? writer->not_downloaded() : 0);
    }
    if (completed) {
      collect(outcome, attempt.results());
      return outcome;
    }
    print_failures(attempt.errors());
    if (outcome.restarts == options.restarts || !can_continue(options)) return outcome;
    ++outcome.restarts;
    fault.next_attempt();
    continues = true;
    if (kept) close(ranks);
    kept.reset();
    reopen<typename Backend::Client>(options, ranks);
  }
}

}  // namespace

Outcome run_training(const Options& options, const Text& text, std::uint64_t text_checksum) {
#ifdef TRAIN_CUDA
  if (options.device_type == cuda_type) return run_on<CudaBackend>(options, text, text_checksum);
#endif
  return run_on<HostBackend>(options, text, text_checksum);
}

}  // namespace train
