// Without a supervisor as it is; under `cox run -- perf_kept` with the values of each commit sent to one.
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/kept/kept_steps.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/perf/cuda/gpu_program.hpp>
#include <coxswain/perf/kept/cuda/gpu_kept_steps.hpp>
#endif

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace cox;
using namespace cox::perf;

void write_all(const HostClient& client, const Handle& state, std::uint64_t value) {
  client.call(KernelArguments().with_buffer(state, Access::Overwrite),
              [bytes = state.size_in_used(), value = static_cast<int>(value)](std::span<void* const> pointers) {
                std::memset(pointers[0], value, bytes);
              });
}

// On devices that are opened and shut down for this sample.
Sample time_on_host(std::size_t count, std::size_t bytes, std::size_t steps, const StepOptions& how) {
  Sample sample;
  {
    std::vector<HostClient> clients;
    for (std::size_t i = 0; i < count; ++i)
      clients.push_back(HostClient::load({host_device_type, static_cast<std::uint16_t>(i)}));
    KeptSteps<HostClient> made(clients, write_all, bytes, how);
    sample = {made.nanoseconds_of_step(steps)};
    made.forget();
  }
  shutdown_all();
  return sample;
}

}  // namespace

int main(int argc, char** argv) {
  [[maybe_unused]] bool cuda = false;
  [[maybe_unused]] bool gpu_required = false;
  [[maybe_unused]] std::vector<std::string> sizes{"4KiB", "64MiB", "1GiB"};
  const Options options = parse_options(
      argc, argv, "Measures what updates of kept memory cost where nothing fails, on one host device and on two.",
      [&]([[maybe_unused]] CLI::App& app) {
#ifdef COX_HAS_CUDA
        app.add_flag("--cuda", cuda, "on the first GPU, and on the first two, instead");
        app.add_option("--bytes", sizes, "with --cuda: sizes of the state; 13 times all of them is held at a time");
        app.add_flag("--require-gpu", gpu_required, "with --cuda: exit with 3 if there is no GPU");
#endif
      });
#ifdef COX_HAS_CUDA
  if (cuda) {
    std::vector<std::size_t> bytes;
    for (const std::string& size : sizes) {
      bytes.push_back(parse_byte_count(size).value_or(0));
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
    const auto with = [=](std::size_t count, const StepOptions& how) {
      return [=] { return time_on_host(count, size.bytes, steps, how); };
    };
    add_kept_cases(suite, exact_byte_count(size.bytes), "ns", true, with);
  }
  return suite.run();
}
