#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/memory/memory_cases.hpp>
#include <coxswain/perf/trace/allocation_trace.hpp>
#include <coxswain/perf/trace/training_step.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/perf/cuda/gpu_program.hpp>
#include <coxswain/perf/memory/cuda/cuda_memory.hpp>
#endif

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using namespace cox::perf;

void add_pairs(Suite& suite, std::size_t live, bool quick) {
  const std::size_t count = quick ? 200'000 : 1'000'000;
  suite.add({.figure = "F10",
             .name = "allocate and free, " + std::to_string(live) + " alive",
             .metrics = {{"one size", "ns per pair"}, {"sizes of random others", "ns per pair"}},
             .contenders = {{"memory_pool", [=] { return pairs<PoolUnderTest>(live, count); }},
                            {"malloc", [=] { return pairs<HeapUnderTest>(live, count); }, "no stream order"},
                            {"pmr_pool", [=] { return pairs<PmrUnderTest>(live, count); }, "no stream order"},
                            {"nothing", [=] { return pairs<NothingUnderTest>(live, count); },
                             "the cost of the calling program alone"}},
             .max_rounds = live >= 1'000'000 ? 3U : ~0U});
}

void add_replay(Suite& suite, const AllocationTrace& trace) {
  for (const std::uint64_t lag : {0U, 400U}) {
    const std::string device =
        lag == 0 ? ", the device keeps up" : ", the device " + std::to_string(lag) + " frees behind";
    suite.add({.figure = "F10",
               .name = "replay of " + trace.name + device,
               .metrics = {{"reserved", "of the peak in use"}, {"", "ns per event"}},
               .contenders = {{"memory_pool", [trace, lag] { return replay<cox::detail::HostStorage>(trace, lag); }},
                              {"without_aliases", [trace, lag] { return replay<WithoutAliases>(trace, lag); }}},
               .max_rounds = 3});
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files;
  [[maybe_unused]] bool cuda = false;
  [[maybe_unused]] bool gpu_required = false;
  const Options options = parse_options(
      argc, argv, "Measures the cost of device memory management, on memory of this process.", [&](CLI::App& app) {
        app.add_option("--trace", files, "replay this trace only, plain or gzipped; may be repeated");
#ifdef COX_HAS_CUDA
        app.add_flag("--cuda", cuda, "use memory of the first GPU instead");
        app.add_flag("--require-gpu", gpu_required, "with --cuda: exit with 3 if there is no GPU");
#endif
      });
  std::vector<AllocationTrace> traces;
  try {
    for (const std::string& file : files) traces.push_back(read_trace(file));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  const bool everything = traces.empty();
  if (everything) traces.push_back(training_steps({}));
#ifdef COX_HAS_CUDA
  if (cuda)
    return with_gpu(options, gpu_required,
                    [&](const Options& read) { return measure_cuda_memory(read, traces, everything); });
#endif
  Suite suite(options, "memory_pool");
  if (everything)
    for (const std::size_t live : {1U, 1'000U, 100'000U, 1'000'000U}) add_pairs(suite, live, options.quick);
  for (const AllocationTrace& trace : traces) add_replay(suite, trace);
  return suite.run();
}
