#include <coxswain/perf/collective/collective_cases.hpp>
#include <coxswain/perf/harness/suite.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/perf/collective/cuda/cuda_collectives.hpp>
#include <coxswain/perf/cuda/gpu_program.hpp>
#endif

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace {

using namespace cox::perf;

constexpr std::size_t ranks = 4;

std::string size_name(std::size_t bytes) {
  return bytes < (1U << 20U) ? std::to_string(bytes >> 10U) + " KiB" : std::to_string(bytes >> 20U) + " MiB";
}

void add_all_reduce(Suite& suite, std::size_t bytes, std::size_t times) {
  suite.add({.figure = bytes == 64U << 20U ? "F18" : "all_reduce",
             .name = "all_reduce of " + size_name(bytes) + " f32 over 4 host devices",
             .metrics = {{"submit and wait", "ms"}},
             .contenders = {{"all_reduce", [=] { return all_reduce(ranks, bytes, times); }},
                            {"copy", [=] { return copy_as_many_bytes(ranks, bytes, times); },
                             "memcpy of the bytes that must move, on all processors; F18: at least 0.60 times ours"},
                            {"barrier", [=] { return threads_and_barrier(ranks, bytes, times); },
                             "four threads and a barrier, no streams"}}});
}

void add_many(Suite& suite, std::size_t times) {
  const auto many = [=](Batch batch) { return [=] { return all_reduce_many(batch, 64, 64 << 10, times); }; };
  suite.add({.figure = "F15",
             .name = "all_reduce of 64 tensors of 64 KiB over 4 host devices",
             .metrics = {{"submit and wait", "ms"}},
             .contenders = {{"all_reduce", many(Batch::Grouped), "host devices, as one group"},
                            {"one_buffer", many(Batch::Packed), "host devices, the tensors in one buffer"},
                            {"one_by_one", many(Batch::OneByOne), "host devices, each on its own"}}});
}

}  // namespace

int main(int argc, char** argv) {
  [[maybe_unused]] bool cuda = false;
  [[maybe_unused]] bool gpu_required = false;
  [[maybe_unused]] bool cold = false;
  [[maybe_unused]] std::size_t gpus = 0;
  [[maybe_unused]] std::string nccl_tests;
  const Options options = parse_options(
      argc, argv, "Measures the cost of collectives between host devices.", [&]([[maybe_unused]] CLI::App& app) {
#ifdef COX_HAS_CUDA
        app.add_flag("--cuda", cuda, "measure between GPUs instead, compared with NCCL alone");
        app.add_flag("--cold", cold, "with --cuda: measure the first all_reduce of a process, each in a new one");
        app.add_option("--gpus", gpus, "with --cuda: number of GPUs (default: all)");
        app.add_option("--nccl-tests", nccl_tests,
                       "with --cuda: folder of the programs of nccl-tests, which are then measured as well");
        app.add_flag("--require-gpu", gpu_required, "with --cuda: exit with 3 if there is no GPU");
#endif
      });
#ifdef COX_HAS_CUDA
  if (cuda)
    return with_gpu(options, gpu_required,
                    [&](const Options& read) { return measure_cuda_collectives(read, {gpus, nccl_tests, cold}); });
#endif
  Suite suite(options, "all_reduce");
  for (const std::size_t bytes : {std::size_t{1} << 10U, std::size_t{1} << 20U, std::size_t{64} << 20U})
    add_all_reduce(suite, bytes, bytes >= (1U << 25U) ? (options.quick ? 5U : 20U) : (options.quick ? 200U : 2000U));
  add_many(suite, options.quick ? 20 : 200);
  suite.add({.figure = "F16",
             .name = "one of four ranks does not submit",
             .metrics = {{"notified after the deadline", "ms"}, {"usable again after", "ms"}},
             .contenders = {{"all_reduce", [] { return missing_rank(); }}}});
  return suite.run();
}
