#include <coxswain/perf/cuda/gpu_program.hpp>

#include <coxswain/perf/harness/report.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

namespace cox::perf {

int with_gpu(const Options& options, bool required, const std::function<int(const Options&)>& body) {
  try {
    if (!enumerate_cuda_devices().empty()) return body(options);
    std::fprintf(stderr, "nothing is measured: %s\n", why_no_cuda().c_str());
    if (!options.json.empty()) write_json(options.json, {}, options);
    return required ? 3 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

int gpu_program(int argc, char** argv, const std::string& about, const MoreOptions& more,
                const std::function<int(const Options&)>& body) {
  bool required = false;
  const Options options = parse_options(argc, argv, about, [&](CLI::App& app) {
    app.add_flag("--require-gpu", required, "exit with 3 if there is no GPU");
    if (more) more(app);
  });
  return with_gpu(options, required, body);
}

}  // namespace cox::perf
