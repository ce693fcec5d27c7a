// Ranks that stop, and others that go on from the kept memory of the same process: with the host kernels, and with the
// CUDA kernels on the CPU, which have rounded copies of the parameters. Also the parts of which this is made.

#include <emulated_backend.hpp>

// The engine's templates, for the emulated device.
#include <engine/gradient_exchange.cpp>  // NOLINT(bugprone-suspicious-include)
#include <engine/kept_tensors.cpp>       // NOLINT(bugprone-suspicious-include)
#include <engine/optimizer.cpp>          // NOLINT(bugprone-suspicious-include)
#include <engine/rank.cpp>               // NOLINT(bugprone-suspicious-include)
#include <engine/training_step.cpp>      // NOLINT(bugprone-suspicious-include)
#include <model/activations.cpp>         // NOLINT(bugprone-suspicious-include)
#include <model/attention.cpp>           // NOLINT(bugprone-suspicious-include)
#include <model/model.cpp>               // NOLINT(bugprone-suspicious-include)

#include <engine/devices.hpp>
#include <engine/kept_run.hpp>
#include <engine/processes.hpp>

#include <require.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>

#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace {

using train::KeptLayout;

struct Result {
  std::vector<float> losses;
  std::vector<std::uint64_t> parameters;  // of each rank

  bool operator==(const Result&) const = default;
};

template <class Backend>
Result run_ranks(const train::Job& job) {
  std::vector<train::RankResult> results(job.ranks.world_size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        results[i] = train::Rank<Backend>(job, Backend::Client::load(job.ranks.devices()[i])).run();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %zu: %s\n", i, error.what());
        std::exit(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  Result result{results.front().losses, {}};
  for (const train::RankResult& each : results) result.parameters.push_back(each.parameters);
  return result;
}

std::string random_text() {
  train::Random random(1, "kept_rank_test");
  std::string text;
  for (int i = 0; i < 600; ++i) text += static_cast<char>('a' + random.next() % 12);
  return text;
}

template <class Backend>
void check(train::Options options, const std::string& name) {
  options.shape = {.vocabulary = 12, .context = 4, .layers = 1, .heads = 1, .width = 8};
  options.batch = 1;
  options.steps = 6;  // a captured update needs three steps of each process
  options.optimizer.warm_up = 2;
  options.evaluation_windows = 1;
  options.log_every = 0;
  const train::Text text(random_text(), options.shape.context);
  const train::Processes processes(options);
  const cox::CommunicationId ranks = train::devices_of(options);
  train::Fault fault(train::FaultKind::None, 0, 0);
  train::Rendezvous rendezvous(options.devices);

  const Result expected = run_ranks<Backend>({options, text, ranks, fault, rendezvous});
  for (const train::Keep keep : {train::Keep::InPlace, train::Keep::Double}) {
    options.keep = keep;
    train::Job job{options, text, ranks, fault, rendezvous};
    train::KeptRun kept(job, "kept_rank_test");
    kept.open<typename Backend::Client>(processes);
    require(!kept.is_used() && !kept.step(), "new memory cannot be used");
    job.kept = &kept.set();
    options.stop_after = 3;
    static_cast<void>(run_ranks<Backend>(job));
    job.kept_step = options.stop_after;
    options.stop_after = 0;
    const Result result = run_ranks<Backend>(job);
    require(result.losses.size() == options.steps, (name + ": number of losses").c_str());
    require(result == expected, (name + ": losses and parameters").c_str());
  }
  std::printf("%s: equal\n", name.c_str());
}

void check_layout() {
  const train::ModelShape shape{.vocabulary = 11, .context = 5, .layers = 2, .heads = 3, .width = 9};
  const train::ParameterList list(shape, train::stage_of(shape, 0, 1));
  const auto client = cox::HostClient::load({cox::host_device_type, 0});
  for (const std::size_t parts : {1U, 3U}) {
    const KeptLayout layout(list, parts, 20);
    for (const KeptLayout::Kind kind : {KeptLayout::Parameters, KeptLayout::FirstMoments, KeptLayout::SecondMoments}) {
      const auto tensors = layout.tensors(kind, client.empty(layout.bytes(kind)));
      require(tensors.size() == list.size(), "a tensor for each parameter");
      std::size_t end = 0;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        require(tensors[i].offset_start() % KeptLayout::alignment == 0, "tensors are aligned");
        require(tensors[i].offset_start() >= end, "tensors do not overlap");
        require(tensors[i].size_in_used() ==
                    list[i].elements / (kind == KeptLayout::Parameters ? 1 : parts) * sizeof(float),
                "bytes of a tensor");
        end = tensors[i].offset_start() + tensors[i].size_in_used();
      }
      require(end <= layout.bytes(kind) && layout.bytes(kind) < end + KeptLayout::alignment, "bytes of the allocation");
    }
    require(layout.bytes(KeptLayout::Losses) == 20 * sizeof(float), "a loss for each step");
  }
}

// Neither rank passes a meeting before the other one arrives; a failure ends the wait.
void check_rendezvous() {
  train::Rendezvous rendezvous(2);
  std::size_t late = 0;  // written before each meeting by one thread, read after it by the other
  std::thread other([&] {
    for (std::size_t i = 1; i <= 1000; ++i) {
      late = i;
      rendezvous.meet();
      rendezvous.meet();
    }
  });
  for (std::size_t i = 1; i <= 1000; ++i) {
    rendezvous.meet();
    require(late == i, "the other rank has arrived");
    rendezvous.meet();
  }
  other.join();
  std::thread failing([&] { rendezvous.fail(); });
  bool refused = false;
  try {
    rendezvous.meet();
  } catch (const std::runtime_error&) {
    refused = true;
  }
  failing.join();
  require(refused, "a rank that has failed is not waited for");
  rendezvous.wait_for_failure();
}

}  // namespace

int main() {
  cox::set_host_device_count(2);
  check_layout();
  check_rendezvous();
  for (const bool captured : {false, true}) {
    const std::string how = captured ? "captured, " : "eager, ";
    train::Options replicated;
    replicated.captured = captured;
    check<train::HostBackend>(replicated, how + "replicated");
    train::Options rounded = replicated;
    rounded.precision = train::Precision::Bfloat16;
    rounded.layout = captured ? train::Layout::Replicated : train::Layout::Sharded;
    check<train::EmulatedBackend>(rounded, how + "CUDA kernels, bf16");
  }
  cox::shutdown_all();
  return 0;
}
