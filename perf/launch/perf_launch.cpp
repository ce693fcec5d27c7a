#include <coxswain/perf/cuda/gpu_program.hpp>
#include <coxswain/perf/cuda/raw_memory.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/launch/graph_replay.hpp>
#include <coxswain/perf/launch/launch_cost.hpp>
#include <coxswain/perf/launch/launched.hpp>
#include <coxswain/perf/launch/torch_peer.hpp>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace cox;
using namespace cox::perf;

class LaunchCases {
 public:
  LaunchCases(Suite& suite, const OpenGpu& gpu, const Options& options)
      : suite_(suite), gpu_(gpu), rounds_(options.rounds), quick_(options.quick) {}

  /// `python`: of an installation with torch, which then is measured beside; empty: it is not.
  void add_client_cost(LaunchShape shape, const std::string& python = {}) {
    constexpr unsigned burst = 200;  // the driver takes about 1,000 before it blocks
    const unsigned bursts = quick_ ? 20 : 100;
    const auto launched = std::make_shared<const Launched>(gpu_, shape);
    const auto at_rest = [launched] { launched->gpu().finish(); };
    const auto ready = std::make_shared<std::vector<KernelArguments>>();
    const auto make_ready = [=] {
      ready->clear();
      for (unsigned i = 0; i < burst; ++i) ready->push_back(launched->arguments());
    };
    Case added{.figure = "F7",
               .name = "a launch on the client thread, " + name_of(shape),
               .metrics = {{"", "ns per call"}, {"p90 of the bursts", "ns per call"}},
               .contenders = {}};
    const auto add = [&](std::string name, auto before, auto call, auto after, std::string note) {
      added.contenders.push_back(
          {std::move(name), [=] { return cost_in_bursts(bursts, burst, before, call, after); }, std::move(note)});
    };
    add("coxswain", [] {}, [launched] { launched->launch(); }, at_rest, "arguments made in the call");
    add(
        "arguments_made_before", make_ready,
        [=] {
          launched->launch(std::move(ready->back()));
          ready->pop_back();
        },
        at_rest, "the same launch");
    add(
        "raw", [] {}, [launched] { launched->launch_raw(launched->gpu().raw().native()); },
        [launched] { launched->gpu().raw().synchronize(); }, "cuLaunchKernelEx");
    if (!python.empty()) {
      const auto torch = std::make_shared<TorchPeer>(python, rounds_, bursts, burst);
      added.contenders.push_back({"torch_add_", [torch] { return torch->next(); }, "in Python; rounds in a row"});
    }
    suite_.add(std::move(added));
  }

  void add_rate(LaunchShape shape) {
    const unsigned launches = quick_ ? 4'000 : 20'000;
    const auto launched = std::make_shared<const Launched>(gpu_, shape);
    suite_.add(
        {.figure = "F8",
         .name = std::to_string(launches) + " launches and a sync, " + name_of(shape),
         .metrics = {{"", "us per launch"}},
         .contenders = {
             {"coxswain",
              [=] { return sustained(launches, [&] { launched->launch(); }, [&] { launched->gpu().finish(); }); }},
             {"raw",
              [=] {
                const RawStream& raw = launched->gpu().raw();
                return sustained(launches, [&] { launched->launch_raw(raw.native()); }, [&] { raw.synchronize(); });
              },
              "cuLaunchKernelEx; F8: at least 0.95 times ours"}}});
  }

  void add_launch_and_sync(LaunchShape shape) {
    const auto launched = std::make_shared<const Launched>(gpu_, shape);
    add_latency(
        "launch and sync, " + name_of(shape), [launched] { launched->launch(); },
        [launched] { launched->launch_raw(launched->gpu().raw().native()); }, "F9: ours at most 1.5 us more");
  }

  void add_replay_and_sync(unsigned launches) {
    const auto launched = std::make_shared<const Launched>(gpu_, LaunchShape{.buffers = 8});
    const auto graph = std::make_shared<const GraphReplay>(*launched, launches);
    add_latency(
        "replay of a graph of " + std::to_string(launches) + " launches, and sync",
        [graph, launched] { graph->replay(); },
        [graph, launched] { graph->replay_raw(launched->gpu().raw().native()); }, "cuGraphLaunch");
  }

  void add_small_read();

 private:
  static std::string name_of(LaunchShape shape) {
    const std::string buffers = std::to_string(shape.buffers) + (shape.buffers == 1 ? " buffer" : " buffers");
    return shape.scalars == 0 ? buffers : buffers + ", " + std::to_string(shape.scalars) + " scalars";
  }

  // What is queued, and the wait for it.
  template <class Ours, class Raw>
  void add_latency(std::string name, Ours ours, Raw raw, std::string note) {
    const unsigned calls = quick_ ? 500 : 5'000;
    suite_.add({.figure = "F9",
                .name = std::move(name),
                .metrics = {{"p50", "us"}, {"p99", "us"}},
                .contenders = {{"coxswain",
                                [=, &gpu = gpu_] {
                                  return latency(calls, [&] {
                                    ours();
                                    gpu.finish();
                                  });
                                }},
                               {"raw",
                                [=, &gpu = gpu_] {
                                  return latency(calls, [&] {
                                    raw();
                                    gpu.raw().synchronize();
                                  });
                                },
                                std::move(note)}},
                .minus = "raw"});
  }

  Suite& suite_;
  const OpenGpu& gpu_;
  unsigned rounds_;
  bool quick_;
};

void LaunchCases::add_small_read() {
  const unsigned calls = quick_ ? 500 : 5'000;
  const Handle handle = gpu_.client().create(Bytes::zeroed(4));
  const CUdeviceptr address = gpu_.address_of(handle);
  const auto pinned = std::make_shared<const RawPinned>(64);
  suite_.add({.figure = "F9",
              .name = "read of 4 bytes",
              .metrics = {{"p50", "us"}, {"p99", "us"}},
              .contenders = {{"coxswain",
                              [=, &gpu = gpu_] {
                                return latency(calls, [&] { static_cast<void>(gpu.client().read_one(handle)); });
                              }},
                             {"raw",
                              [=, &gpu = gpu_] {
                                return latency(calls, [&] {
                                  COX_CUDA_TRY(copy_to_host(pinned->data(), address, 4, gpu.raw().native()));
                                  gpu.raw().synchronize();
                                });
                              },
                              "cuMemcpyDtoHAsync to page-locked memory; F9: ours at most 2 us more"}},
              .minus = "raw"});
}

int measure(const Options& options, const std::string& python) {
  const OpenGpu gpu;
  gpu.raw().activate();
  Suite suite(options, "coxswain");
  LaunchCases cases(suite, gpu, options);
  for (const unsigned buffers : {1U, 4U, 8U}) cases.add_client_cost({.buffers = buffers}, buffers == 1 ? python : "");
  cases.add_client_cost({.buffers = 8, .scalars = 4});
  for (const unsigned buffers : {8U, 0U}) cases.add_rate({.buffers = buffers});
  cases.add_launch_and_sync({.buffers = 8});
  cases.add_small_read();
  cases.add_replay_and_sync(16);
  return suite.run();
}

}  // namespace

int main(int argc, char** argv) {
  std::string python;
  return gpu_program(
      argc, argv, "Measures the cost of launches on a GPU, compared with the driver's own calls.",
      [&](CLI::App& app) {
        app.add_option("--torch", python,
                       "Python with torch, which is then measured as well; run this from the repository's root");
      },
      [&](const Options& options) { return measure(options, python); });
}
