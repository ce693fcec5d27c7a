// Measures how long a program with kept memory is away after a fault. It starts itself under `cox run`, as the program
// that fails.
#include <coxswain/perf/harness/machine.hpp>
#include <coxswain/perf/harness/report.hpp>
#include <coxswain/perf/recovery/host_worker.hpp>
#include <coxswain/perf/recovery/journal.hpp>
#include <coxswain/perf/recovery/recovery_options.hpp>
#include <coxswain/perf/recovery/rounds.hpp>
#include <coxswain/perf/recovery/worker.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/perf/recovery/cuda/gpu_worker.hpp>
#endif

#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

namespace {

using namespace cox::perf;

[[noreturn]] void work(int argc, char** argv, const char* descriptors) {
  const sigset_t signals = block_worker_signals();
  const Journal journal(descriptors);
  journal.report(Moment::Started);
  const RecoveryOptions options = parse_recovery_options(argc, argv);
#ifdef COX_HAS_CUDA
  if (options.devices.front().type != cox::host_device_type) run_gpu_worker(options, journal, signals);
#endif
  run_host_worker(options, journal, signals);
}

int measure(const RecoveryOptions& options) {
  std::printf("%s; %u rounds, seed %llu\n", describe(this_machine()).c_str(), options.common.rounds,
              static_cast<unsigned long long>(options.common.seed));
  int code = 0;
  std::vector<Row> rows;
  try {
    measure_recovery(options, rows);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = 1;
  }
  if (!options.common.json.empty()) write_json(options.common.json, rows, options.common);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (int i = 1; i + 1 < argc; ++i)
      if (std::string_view(argv[i]) == "--worker") work(argc, argv, argv[i + 1]);
    return measure(parse_recovery_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perf_recovery: %s\n", error.what());
    return 1;
  }
}
