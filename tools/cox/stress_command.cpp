#include <coxswain/tools/cox/stress_command.hpp>

#include <coxswain/collectives/communication_groups.hpp>
#include <coxswain/device_handle/error.hpp>
#include <coxswain/runtime/process_settings.hpp>
#include <coxswain/runtime/telemetry/chrome_trace.hpp>
#include <coxswain/runtime/telemetry/metrics.hpp>
#include <coxswain/runtime/telemetry/trace.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/dump_request.hpp>
#include <coxswain/tools/cox/interruption.hpp>
#include <coxswain/tools/cox/output_file.hpp>
#include <coxswain/tools/cox/progress_line.hpp>
#include <coxswain/tools/cox/settings.hpp>
#include <coxswain/tools/cox/stress/engine.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>

namespace cox::tools {
namespace {

constexpr int standard_seconds = 10;
constexpr std::uint64_t most_operations = std::uint64_t{1} << 56U;

// A trace of which nothing is left if nobody has taken it.
class TraceScope {
 public:
  explicit TraceScope(bool on) : on_(on) {
    if (on) trace::start({.capacity = settings().get<std::uint64_t>("trace.capacity")});
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope() {
    if (on_) (void)trace::stop();
  }

 private:
  bool on_;
};

// Says so if not.
bool written(const char* option, const std::string& path, bool done, std::ostream& err) {
  if (!done) err << "cox stress: " << option << ": '" << path << "' could not be written\n" << std::flush;
  return done;
}

stress::Report stress_devices(stress::Options options, const std::atomic<bool>& interrupted,
                              const stress::ProgressSink& progress) {
#if COX_HAS_CUDA
  if (options.devices.front().type == cuda_device_type) {
    // The driver's own threads stay: they are there before the run, so that what it leaves behind can be counted.
    for (const DeviceId device : options.devices) static_cast<void>(CudaClient::load(device));
    shutdown_all();
    return stress::run<stress::CudaBackend>(std::move(options), interrupted, progress);
  }
#endif
  return stress::run(std::move(options), interrupted, progress);
}

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

}  // namespace

StressCommand::StressCommand(CLI::App& app)
    : command_(*app.add_subcommand("stress", "Run devices hard and check that every law holds")) {
  command_.add_option("--devices", devices_, "host, host:COUNT, cuda or cuda:INDEX,INDEX")->capture_default_str();
  auto* seconds = command_.add_option("--seconds", seconds_, "Stop after this time (default: 10)");
  command_.add_option("--operations", operations_, "Stop after so many operations of all clients together")
      ->excludes(seconds);
  command_.add_option("--clients", clients_, "Client threads")->capture_default_str();
  command_.add_option("--seed", seed_, "Of everything that is chosen (default: by chance, and shown)");
  command_.add_option("--mix", mix_,
                      "How often each is done (default: "
                      "submit=40,blocking=10,exclusive=2,create=10,read=10,launch=20,tensor=5,graph=3,profile=2, and "
                      "with two devices or more transfer=3,all_reduce=5,all_gather=1,reduce_scatter=1,broadcast=1,"
                      "all_to_all=1)");
  command_.add_option("--payload", payload_, "Bytes of a buffer, SMALLEST:LARGEST (default: 64:1MiB)");
  command_.add_option("--fault", fault_,
                      "How often what goes wrong, such as throw=0.001,cancel=0.001,expire=0.001; of collectives also "
                      "stall, missing, mismatch, shutdown");
  command_.add_option("--json", json_, "Write the result to this file");
  command_.add_option("--trace", trace_, "Write the end of the run to this file, for ui.perfetto.dev");
  command_.add_option("--metrics", metrics_,
                      "Write the metrics at the end of the run to this file, as Prometheus text");
  command_.add_option("--flight-recorder", flight_recorder_,
                      "Where the last operations of each communicator are written, as JSON, at SIGUSR1 and at a "
                      "violation (default: standard error)");
  command_.add_flag("--quiet", quiet_, "No progress and no table");
}

bool StressCommand::chosen() const { return command_.parsed(); }

stress::Options StressCommand::options() const {
  stress::Options options;
  if (!operations_.empty()) options.operations = parse_count("--operations", operations_, 1, most_operations);
  if (!seconds_.empty()) options.duration = parse_seconds("--seconds", seconds_);
  if (!options.operations && !options.duration) options.duration = std::chrono::seconds(standard_seconds);
  options.clients = static_cast<std::uint32_t>(parse_count("--clients", clients_, 1, stress::Options::most_clients));
  if (!mix_.empty()) options.mix = stress::Mix::parse("--mix", mix_);
  if (!payload_.empty()) options.payload = stress::Payload::parse("--payload", payload_);
  if (!fault_.empty()) options.faults = stress::FaultRates::parse("--fault", fault_);
  options.seed =
      seed_.empty() ? random_seed() : parse_count("--seed", seed_, 0, std::numeric_limits<std::uint64_t>::max());
  if (!json_.empty()) require_writable("--json", json_);
  if (!trace_.empty()) require_writable("--trace", trace_);
  if (!metrics_.empty()) require_writable("--metrics", metrics_);
  if (!flight_recorder_.empty()) require_writable("--flight-recorder", flight_recorder_);
  options.devices = parse_devices("--devices", devices_);  // last: a bad argument comes before a missing device
  if (!mix_.empty() && options.mix.has_collectives() && options.devices.size() < 2)
    throw ArgumentError("--mix: transfers and collectives need two devices or more");
  return options;
}

ExitCode StressCommand::run(std::ostream& out, std::ostream& err) const {
  stress::Options options = this->options();
  std::string metrics;
  if (!metrics_.empty()) options.at_rest = [&metrics] { metrics = metrics::text(); };
  const TraceScope tracing(!trace_.empty());
  stress::Report report;
  {
    const Interruption interruption;
    DumpRequest request;
    options.on_look = [&] {
      if (request.take()) write_flight_recorders(err);
    };
    options.on_violation = [&] { write_flight_recorders(err); };
    ProgressLine line(err, &err == &std::cerr && isatty(STDERR_FILENO) == 1);
    const auto show = [&line](const stress::Progress& progress) { line.show(progress); };
    report = stress_devices(std::move(options), interruption.flag(), quiet_ ? stress::ProgressSink() : show);
  }
  if (!quiet_) out << table(report);
  out << verdict(report) << std::flush;
  const bool files[] = {write_json(report, err), write_trace(err), write_metrics(metrics, err)};
  const ExitCode code =
      report.ok() && std::ranges::find(files, false) == std::end(files) ? ExitCode::Ok : ExitCode::Violation;
  if (report.abandoned) std::_Exit(static_cast<int>(code));
  return code;
}

bool StressCommand::write_json(const stress::Report& report, std::ostream& err) const {
  return json_.empty() || written("--json", json_, write_file(json_, json(report)), err);
}

bool StressCommand::write_trace(std::ostream& err) const {
  if (trace_.empty()) return true;
  try {
    trace::write_chrome_trace(trace_, trace::stop());
    return true;
  } catch (const Error&) {
    return written("--trace", trace_, false, err);
  }
}

void StressCommand::write_flight_recorders(std::ostream& err) const {
  const std::string text = dump_flight_recorders() + "\n";
  if (flight_recorder_.empty())
    err << text << std::flush;
  else
    static_cast<void>(written("--flight-recorder", flight_recorder_, write_file(flight_recorder_, text), err));
}

bool StressCommand::write_metrics(const std::string& text, std::ostream& err) const {
  return metrics_.empty() || written("--metrics", metrics_, write_file(metrics_, text), err);
}

}  // namespace cox::tools
