// Without a supervisor as it is; under `cox run -- perf_kept` with the values of each commit sent to one.
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/kept/kept_steps.hpp>
#include <coxswain/runtime/base/byte_count.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/perf/cuda/gpu_program.hpp>
#include <coxswain/perf/kept/cuda/gpu_kept_steps.hpp>
#endif

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  using namespace cox::perf;
  [[maybe_unused]] bool cuda = false;
  [[maybe_unused]] bool gpu_required = false;
  [[maybe_unused]] std::vector<std::string> sizes{"4KiB", "64MiB", "1GiB"};
  const Options options = parse_options(
      argc, argv, "Measures what updates of kept memory cost where nothing fails, on a host device.",
      [&]([[maybe_unused]] CLI::App& app) {
#ifdef COX_HAS_CUDA
        app.add_flag("--cuda", cuda, "on the first GPU instead");
        app.add_option("--bytes", sizes, "with --cuda: sizes of the state; six times all of them is kept at a time");
        app.add_flag("--require-gpu", gpu_required, "with --cuda: exit with 3 if there is no GPU");
#endif
      });
#ifdef COX_HAS_CUDA
  if (cuda) {
    std::vector<std::size_t> bytes;
    for (const std::string& size : sizes) {
      bytes.push_back(cox::parse_byte_count(size).value_or(0));
      if (bytes.back() != 0) continue;
      std::fprintf(stderr, "--bytes: '%s' is no size such as 64MiB\n", size.c_str());
      return 2;
    }
    return with_gpu(options, gpu_required, [&](const Options& read) { return measure_gpu_kept(read, bytes); });
  }
#endif
  Suite suite(options, "kept");
  struct Size {
    std::size_t bytes;
    std::size_t steps;
  };
  for (const Size size : {Size{4096, 20'000}, Size{std::size_t{1} << 20U, 4'000}, Size{std::size_t{64} << 20U, 64}}) {
    const std::size_t steps = options.quick ? size.steps / 10 + 1 : size.steps;
    const auto with = [=](const StepOptions& how) { return [=] { return time_of_steps(size.bytes, steps, how); }; };
    suite.add({.figure = "F23",
               .name = "a step that writes " + cox::exact_byte_count(size.bytes) + " of state",
               .metrics = {{"", "ns per step"}},
               .contenders = {{"kept", with({.kept = true}), "in place"},
                              {"plain", with({}), "not kept"},
                              {"two_copies", with({.kept = true, .mode = cox::KeptMode::Double})},
                              {"checksums", with({.kept = true, .checksum_every = 1}), "of each commit"},
                              {"checksums_of_64th", with({.kept = true, .checksum_every = 64})}},
               .minus = "plain"});
  }
  return suite.run();
}
