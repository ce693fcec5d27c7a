#include <engine/backends.hpp>
#include <engine/devices.hpp>
#include <engine/failure.hpp>
#include <engine/kept_run.hpp>
#include <engine/random_gpu_fault.hpp>
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
#include <array>
#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <random>
#include <span>
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

  explicit Attempt(const Job& job)
      : job_(job), first_(job.first_rank()), results_(job.local_ranks()), errors_(results_.size()) {}

  /// Blocks until all ranks of this process have ended. Returns whether all have completed the last step. Throws
  /// std::system_error if a thread cannot be started; then no rank has begun.
  bool run() {
    std::promise<bool> started;
    const std::shared_future<bool> all_started = started.get_future().share();
    std::vector<std::thread> threads;
    const auto end = [&](bool may_run) {
      started.set_value(may_run);
      for (std::thread& thread : threads) thread.join();
    };
    try {
      threads.reserve(results_.size());
      for (std::size_t i = 0; i < results_.size(); ++i)
        threads.emplace_back([this, i, all_started] {
          if (all_started.get()) run_rank(i);
        });
    } catch (...) {
      end(false);
      throw;
    }
    end(true);
    return std::ranges::all_of(errors_, [](const std::exception_ptr& error) { return error == nullptr; });
  }

  [[nodiscard]] std::vector<RankResult>& results() { return results_; }
  [[nodiscard]] const std::vector<std::exception_ptr>& errors() const { return errors_; }

 private:
  void run_rank(std::size_t i) {
    std::optional<Client> client;
    std::optional<Rank<Backend>> rank;
    try {
      client = Client::load(job_.device(first_ + i));
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
      if (ranks.contains(client.device_id())) ignore_failure([&] { client.abort_collective(ranks, cause); });
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
  const std::size_t first_;  // rank
  std::vector<RankResult> results_;
  std::vector<std::exception_ptr> errors_;
};

void print_failures(const std::vector<std::exception_ptr>& errors, std::size_t first_rank) {
  for (std::size_t i = 0; i < errors.size(); ++i)
    if (errors[i] != nullptr)
      std::fprintf(stderr, "rank %zu failed (%s):\n%s\n", first_rank + i, failure_kinds(errors[i]).c_str(),
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

bool fell(const std::vector<float>& losses) {
  if (losses.size() < 2) return false;
  const std::size_t count = std::min<std::size_t>(10, losses.size() / 2);
  float sum = 0;
  for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<float>(count) < losses.front();
}

/// What the other processes must know of the outcome in one of them.
struct ProcessRecord {
  struct OfRank {
    std::uint64_t parameters = 0;
    double evaluation_sum = 0;
    std::uint64_t evaluation_count = 0;
  };
  std::uint64_t local_ranks = 0;
  std::array<OfRank, max_local_devices> ranks{};
  std::uint64_t loss_fell = 0;
  std::uint64_t checkpoints_written = 0;
  std::uint64_t checkpoints_failed = 0;
};

template <class Client>
void collect(Outcome& outcome, std::vector<RankResult>& results, const Processes& processes) {
  RankResult& first = results.front();
  outcome.completed = true;
  outcome.losses = std::move(first.losses);
  outcome.times = std::move(first.times);
  outcome.memory = first.memory;
  outcome.traced_step = first.traced_step;
  outcome.traced = std::move(first.traced);
  ProcessRecord own{.local_ranks = results.size(),
                    .loss_fell = fell(outcome.losses) ? std::uint64_t{1} : std::uint64_t{0},
                    .checkpoints_written = outcome.checkpoints_written,
                    .checkpoints_failed = outcome.checkpoints_failed};
  for (std::size_t i = 0; i < results.size(); ++i)
    own.ranks[i] = {results[i].parameters, results[i].evaluation_sum, results[i].evaluation_count};
  const auto records = processes.gather<Client>(own);
  outcome.loss_fell = records.front().loss_fell != 0;
  outcome.checkpoints_written = records.front().checkpoints_written;
  outcome.checkpoints_failed = 0;
  for (const ProcessRecord& record : records) {
    outcome.checkpoints_failed = std::max<std::size_t>(outcome.checkpoints_failed, record.checkpoints_failed);
    for (std::size_t i = 0; i < record.local_ranks; ++i) {
      outcome.evaluation_loss += record.ranks[i].evaluation_sum;
      outcome.evaluated += record.ranks[i].evaluation_count;
      outcome.checksums.push_back(record.ranks[i].parameters);
    }
  }
  outcome.evaluation_loss /= static_cast<double>(std::max<std::size_t>(1, outcome.evaluated));
}

}  // namespace

bool Outcome::replicas_identical() const {
  return std::ranges::all_of(checksums, [this](std::uint64_t sum) { return sum == checksums.front(); });
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

// Begins with the contents of kept memory, if all processes can use them.
template <class Client>
void open_kept(KeptRun& kept, Job& job, const Processes& processes) {
  kept.open<Client>(processes);
  job.kept = &kept.set();
  job.kept_step = kept.step();
  if (processes.is_first()) std::printf("kept memory: %s\n", kept.to_string().c_str());
}

// Throws if the processes would not train the same model with the same text.
template <class Client>
void require_equal_options(const std::string& print, const Processes& processes) {
  const auto prints = processes.gather<Client>(checksum(std::as_bytes(std::span(print))));
  for (std::size_t process = 1; process < prints.size(); ++process)
    if (prints[process] != prints.front())
      throw std::runtime_error("process " + std::to_string(process) +
                               " has other options or another text than process 0");
}

// Each process reads the folder, which is the same one for all: nothing is written there before all have read it.
template <class Client>
std::optional<Checkpoint> common_checkpoint(const Options& options, const std::string& print,
                                            const Processes& processes) {
  auto checkpoint = newest_checkpoint(options.checkpoints, print);
  const auto steps = processes.gather<Client>(checkpoint ? checkpoint->step : std::uint64_t{0});
  for (std::size_t process = 0; process < steps.size(); ++process)
    if (steps[process] != steps.front())
      throw std::runtime_error("process 0 continues after step " + std::to_string(steps.front()) + " of " +
                               options.checkpoints.string() + ", process " + std::to_string(process) + " after step " +
                               std::to_string(steps[process]) + ": the folder must be the same one for all processes");
  return checkpoint;
}

// The ranks of this process whose state it writes into checkpoints; none: 0. Replicas are written once.
CheckpointRanks written_ranks(const Job& job) {
  if (job.options.layout == Layout::Replicated) return {0, job.first_rank() == 0 ? std::size_t{1} : 0, 1};
  return {job.first_rank(), job.local_ranks(), job.ranks.world_size()};
}

// Failures are a property of handles, and kept memory is opened again only when no work uses it: so devices end, too.
void close(const cox::CommunicationId& ranks) {
  for (const cox::DeviceId device : ranks.devices()) cox::shutdown(device);
}

template <class Backend>
Outcome run_on(const Options& options, const Text& text, const std::string& print, const Processes& processes) {
  using Client = typename Backend::Client;
  const cox::CommunicationId& ranks = processes.ranks();
  require_equal_options<Client>(print, processes);
  Fault fault(options.fault, options.fault_step, std::random_device()());
  Outcome outcome;
  bool continues = options.resume;
  while (true) {
    Rendezvous rendezvous(options.local_devices);
    Job job{options, text, ranks, fault, rendezvous};
    std::optional<KeptRun> kept;
    if (options.keep != Keep::No) {
      open_kept<Client>(kept.emplace(job, print), job, processes);
      continues = continues || kept->is_used();
    }
    require_new_run(options, continues);
    std::optional<Checkpoint> checkpoint;
    if (continues && !job.kept_step && !options.checkpoints.empty())
      checkpoint = common_checkpoint<Client>(options, print, processes);
    if (checkpoint) job.start = &*checkpoint;
    if (continues && processes.is_first()) std::printf("continues after step %zu\n", job.first_step() - 1);
    std::optional<CheckpointWriter> writer;
    if (const CheckpointRanks written = written_ranks(job); !options.checkpoints.empty() && written.count != 0)
      job.writer = &writer.emplace(options.checkpoints, print, written);
    std::optional<RandomGpuFault<Backend>> gpu_fault;
    if (is_random_gpu_fault(options.fault)) gpu_fault.emplace(job);
    Attempt<Backend> attempt(job);
    const bool completed = attempt.run();
    if (writer) {
      writer->finish();
      outcome.checkpoints_written += writer->written();
      outcome.checkpoints_failed += writer->not_written() + (completed ? writer->not_downloaded() : 0);
    }
    if (completed) {
      collect<Client>(outcome, attempt.results(), processes);
      return outcome;
    }
    print_failures(attempt.errors(), job.first_rank());
    if (processes.count() > 1) {
      const auto& errors = attempt.errors();
      processes.abort<Client>(*std::ranges::find_if(errors, [](const auto& error) { return error != nullptr; }));
      outcome.needs_new_world = options.restarts != 0 && std::ranges::none_of(errors, is_unsupported);
      return outcome;
    }
    if (outcome.restarts == options.restarts || !can_continue(options)) return outcome;
    ++outcome.restarts;
    fault.next_attempt();
    continues = true;
    if (kept) close(ranks);
    kept.reset();
    reopen<Client>(options, ranks);
  }
}

}  // namespace

Outcome run_training(const Options& options, const Text& text, std::uint64_t text_checksum,
                     const Processes& processes) {
  const std::string print = fingerprint(options, text_checksum);
#ifdef TRAIN_CUDA
  if (options.device_type == cuda_type) return run_on<CudaBackend>(options, text, print, processes);
#endif
  return run_on<HostBackend>(options, text, print, processes);
}

}  // namespace train
