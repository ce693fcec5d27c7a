#include <coxswain/tools/cox/stress_command.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/collectives/discovery/discover.hpp>
#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/telemetry/metrics.hpp>
#include <coxswain/runtime/trace/chrome_trace.hpp>
#include <coxswain/runtime/trace/trace.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/dump_request.hpp>
#include <coxswain/tools/cox/interruption.hpp>
#include <coxswain/tools/cox/output_file.hpp>
#include <coxswain/tools/cox/progress_line.hpp>
#include <coxswain/tools/cox/settings.hpp>
#include <coxswain/tools/cox/stress/engine.hpp>
#include <coxswain/tools/cox/stress/kept_stress.hpp>
#include <coxswain/tools/cox/stress/stress_world.hpp>
#include <coxswain/tools/cox/world_stress/world_member.hpp>
#include <coxswain/tools/cox/world_stress/world_stress.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cox::tools {
namespace {

constexpr std::string_view command_name = "cox stress";
constexpr int standard_seconds = 10;
constexpr std::uint64_t max_operations = std::uint64_t{1} << 56U;

// Records a trace if `on`. The destructor stops the trace and discards events that were not written to a file.
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

bool are_gpus(const std::vector<DeviceId>& devices) { return devices.front().type != host_device_type; }

// The CUDA driver keeps its own threads after shutdown. Start them before the run, so that they are not counted as
// leaks, and before the world is joined, because shutting down a device ends its communicators in the world.
void start_driver_threads(const std::vector<DeviceId>& gpus) {
#if COX_HAS_CUDA
  for (const DeviceId device : gpus) static_cast<void>(CudaClient::load(device));
  shutdown_all();
#else
  static_cast<void>(gpus);
#endif
}

stress::Report stress_devices(stress::Options options, const std::atomic<bool>& interrupted,
                              const stress::ProgressSink& progress) {
#if COX_HAS_CUDA
  if (are_gpus(options.devices)) return stress::run<stress::CudaBackend>(std::move(options), interrupted, progress);
#endif
  return stress::run(std::move(options), interrupted, progress);
}

std::string standard_recorder_file() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return (folder / ("cox-stress-" + std::to_string(getpid()) + ".flight-recorder.json")).string();
}

[[noreturn]] void refuse_setting(std::string_view key, const std::string& why) {
  const Settings now = settings();
  const cox::Setting& setting = find_setting(key);
  throw ArgumentError(std::string(key) + " is " + cox::to_string(setting, now.value(setting)) + " (" +
                      cox::to_string(now.source(setting)) + "): " + why);
}

// Refuses settings with which client calls fail, or the process runs out of memory, although all laws hold.
void require_suitable_settings(const stress::Options& options) {
  const Settings now = settings();
  if (now.get<QueuePolicy>("device_thread.queue_policy") == QueuePolicy::Fail)
    refuse_setting("device_thread.queue_policy",
                   "cox stress needs block, because its clients do not repeat refused calls");
  if (options.ranks().size() < 2) return;
  const std::uint64_t rounds = stress::RoundBook::most_rounds(options.clients);
  if (now.get<std::uint64_t>("collectives.max_ahead") < rounds)
    refuse_setting("collectives.max_ahead", "with " + std::to_string(options.clients) + " clients a device may be " +
                                                std::to_string(rounds) +
                                                " operations ahead of another; at least that value is needed");
  // Each rank of each communicator allocates memory for this many entries.
  constexpr std::uint64_t bytes_of_entry = 256;
  constexpr std::uint64_t most_communicators = 32;
  const auto physical =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t recorded = now.get<std::uint64_t>("collectives.recorded");
  if (recorded > physical / 4 / (bytes_of_entry * most_communicators * options.devices.size()))
    refuse_setting("collectives.recorded", "the flight recorders of all communicators would need too much memory");
}

bool has_scarce_pinned_memory(const stress::Options& options) {
  return settings().get<std::uint64_t>("host.pinned_memory") / 4 < options.payload.largest * options.clients;
}

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

// The processes of a host see the same GPUs, and each of them takes one part.
std::vector<DeviceId> part_of_process(const std::vector<DeviceId>& gpus, const WorldPlace& place) {
  if (place.processes == 1) return gpus;
  if (!place.local_process || !place.local_processes)
    throw ArgumentError("--devices: the launcher does not say which processes share the GPUs of this host");
  const std::size_t count = gpus.size() / *place.local_processes;
  if (count * *place.local_processes != gpus.size())
    throw ArgumentError("--devices: " + std::to_string(*place.local_processes) +
                        " processes of this host cannot share " + std::to_string(gpus.size()) + " GPUs evenly");
  const auto first = gpus.begin() + static_cast<std::ptrdiff_t>(*place.local_process * count);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

StressCommand::StressCommand(CLI::App& app)
    : command_(*app.add_subcommand("stress", "Run random work on devices, and check that every law holds")) {
  command_
      .add_option("--devices", devices_,
                  "host, host:COUNT, cuda or cuda:INDEX,INDEX. In a world each process of a host takes "
                  "an equal part of the GPUs")
      ->capture_default_str();
  auto* seconds = command_.add_option("--seconds", seconds_, "Stop after this time (default: 10)");
  command_.add_option("--operations", operations_, "Stop after this number of operations of all clients together")
      ->excludes(seconds);
  command_
      .add_option("--rounds", rounds_,
                  "Stop after this number of rounds of collectives, which are a function of the seed alone, and print "
                  "a digest of all results")
      ->excludes("--operations")
      ->excludes(seconds);
  command_.add_option("--clients", clients_, "Number of client threads")->capture_default_str();
  command_.add_option("--seed", seed_, "Seed of all random choices (default: random, and printed)");
  command_.add_option("--mix", mix_,
                      "Relative frequency of each operation (default: "
                      "submit=40,blocking=10,exclusive=2,create=10,read=10,launch=20,tensor=5,graph=3,profile=2, and "
                      "with two devices or more transfer=3,all_reduce=5,all_gather=1,reduce_scatter=1,broadcast=1,"
                      "all_to_all=1)");
  command_.add_option("--payload", payload_, "Range of the sizes of buffers, SMALLEST:LARGEST (default: 64:1MiB)");
  command_.add_option(
      "--fault", fault_,
      "Probability of each injected fault, such as throw=0.001,cancel=0.001,expire=0.001; for collectives also "
      "stall, missing, mismatch, shutdown, leave, poison");
  command_.add_option("--json", json_, "Write the result to this file; -: to standard output, instead of the table");
  command_.add_option("--trace", trace_, "Write a trace of the end of the run to this file, for ui.perfetto.dev");
  command_.add_option("--metrics", metrics_,
                      "Write the metrics at the end of the run to this file, as Prometheus text");
  command_.add_option(
      "--flight-recorder", flight_recorder_,
      "Write the last operations of each communicator to this file, as JSON, at SIGUSR1 and at a violation "
      "(default: a file in the folder for temporary files; its name is printed)");
  command_.add_flag("--quiet", quiet_, "Print no progress and no table");
  command_.add_option("--kept", kept_,
                      "Instead: update kept sets in this number of processes, one after the other as under `cox run`, "
                      "and check what each finds. --fault kill=0.5 has half of them killed (default: all), crash=0.5 "
                      "crash or exit, gpu=0.5 end by a kernel that fails");
  command_.add_flag("--standby", standby_, "With --kept: as under `cox run --standby`");
  command_.add_option("--world", worlds_,
                      "Instead: start this number of worlds, one after the other. In each a process, or a connection, "
                      "fails at a message of the protocol; check which errors the others get and that they continue. "
                      "--fault kill, or weights such as kill=0.5,stop=0.3,slow=0.1,cut=0.1");
  command_.add_option("--processes", processes_, "With --world: of each world")->capture_default_str();
  command_.add_option("--world-member", world_member_)->group("");  // for a process of --world
  command_.add_option("--world-flaw", world_flaw_)->group("");      // for tests
  command_.add_option("--kept-book", kept_book_)->group("");        // for a process of --kept
  command_.add_flag("--kept-flaw", kept_flaw_)->group("");          // for tests
  command_.footer(
      "The table counts operations of clients. \"accepted\" counts the closures that device threads\n"
      "were given: an operation has one or more of them, and checks have some, too.");
}

bool StressCommand::chosen() const { return command_.parsed(); }

stress::Options StressCommand::options() const {
  stress::Options options;
  if (!operations_.empty()) options.operations = parse_count("--operations", operations_, 1, max_operations);
  if (!seconds_.empty()) options.duration = parse_seconds("--seconds", seconds_);
  if (!options.operations && !options.duration && rounds_.empty())
    options.duration = std::chrono::seconds(standard_seconds);
  options.clients = static_cast<std::uint32_t>(parse_count("--clients", clients_, 1, stress::Options::max_clients));
  if (!mix_.empty()) options.mix = stress::Mix::parse("--mix", mix_);
  if (!payload_.empty()) options.payload = stress::Payload::parse("--payload", payload_);
  if (!fault_.empty()) options.faults = stress::FaultRates::parse("--fault", fault_);
  options.seed = seed();
  require_output_files();
  options.devices = parse_devices("--devices", devices_);  // last: report an invalid argument before a missing device
  return options;
}

// Before a world is joined: otherwise the other processes would report that this one has left it.
void StressCommand::require_shareable(const stress::Options& options, bool in_world) const {
  if (!in_world && rounds_.empty()) return;
  if (in_world && !operations_.empty())
    throw ArgumentError("--operations: in a world it is --rounds, which all processes count");
  if (!options.mix.has_collectives())
    throw ArgumentError("--mix: in a world, and with --rounds, it needs transfers or collectives");
  for (const stress::Fault fault : {stress::Fault::Missing, stress::Fault::Shutdown, stress::Fault::Leave})
    if (options.faults.rate(fault) > 0)
      throw ArgumentError("--fault: in a world, and with --rounds, not " + std::string(stress::to_string(fault)));
}

// Has the rounds of collectives be those of the whole world, or of --rounds.
void StressCommand::share(stress::Options& options, stress::StressWorld* world) const {
  if (world == nullptr && rounds_.empty()) return;
  if (world != nullptr) {
    options.shared = world->shared_run();
    process_ = world->process();
    if (seed_.empty()) options.seed = world->seed();
  } else {
    options.shared = stress::SharedRun{.devices = options.devices};
  }
  if (!rounds_.empty()) options.shared->rounds = parse_count("--rounds", rounds_, 1, max_operations);
  if (options.shared->devices.size() < 2) throw ArgumentError("--rounds: collectives need two devices or more");
}

std::string StressCommand::file_of(const std::string& path) const {
  return path.empty() || process_ == 0 ? path : path + "." + std::to_string(process_);
}

void StressCommand::require_output_files() const {
  const std::vector<std::pair<std::string_view, std::string>> files{
      {"--json", json_}, {"--trace", trace_}, {"--metrics", metrics_}, {"--flight-recorder", flight_recorder_}};
  for (const auto& [option, path] : files) {
    if (path == standard_output && option != "--json")
      throw ArgumentError(std::string(option) + ": a file is needed; only --json can be written to standard output");
    if (!path.empty() && path != standard_output) require_writable(option, path);
  }
  require_different_files(files);
}

std::uint64_t StressCommand::seed() const {
  return seed_.empty() ? random_seed() : parse_count("--seed", seed_, 0, std::numeric_limits<std::uint64_t>::max());
}

void StressCommand::refuse_options(std::string_view with, const std::vector<const char*>& options) const {
  for (const char* const option : options)
    if (command_.count(option) != 0)
      throw ArgumentError(std::string(option) + " has no meaning with " + std::string(with));
}

stress::WorldStressOptions StressCommand::world_options() const {
  constexpr std::uint64_t fewest = 3;
  constexpr std::uint64_t most = 64;
  stress::WorldStressOptions options;
  options.rounds = parse_count("--world", worlds_, 1, 1'000'000);
  options.processes = static_cast<std::uint16_t>(parse_count("--processes", processes_, fewest, most));
  options.seed = seed();
  options.flaw = world_flaw_;
  if (!fault_.empty()) options.rates = stress::WorldFaultRates::parse("--fault", fault_);
  refuse_options("--world", {"--devices", "--seconds", "--operations", "--rounds", "--mix", "--payload", "--json",
                             "--trace", "--metrics", "--clients", "--flight-recorder", "--standby"});
  return options;
}

ExitCode StressCommand::run_worlds(std::ostream& out, std::ostream& err) const {
  if (!world_member_.empty())
    return static_cast<ExitCode>(stress::run_world_member(stress::WorldMember::parse(world_member_)));
  const stress::WorldStressOptions options = world_options();
  const Interruption interruption;
  const bool shows = !quiet_ && &err == &std::cerr && isatty(STDERR_FILENO) == 1;
  const stress::WorldStressResult result = stress::run_world_stress(
      options, {std::filesystem::read_symlink("/proc/self/exe"), "stress", "--world", "1", "--world-member"},
      interruption.flag(), [&](std::uint64_t rounds) {
        if (shows) err << "\r" << rounds << " rounds" << std::flush;
      });
  if (shows) err << "\r";
  for (const std::string& each : result.wrong) err << each << "\n";
  if (!quiet_ || !result.ok()) out << "seed " << options.seed << "\n" << result.to_string() << std::flush;
  return result.ok() ? ExitCode::Ok : ExitCode::Violation;
}

stress::KeptStress StressCommand::kept_options() const {
  stress::KeptStress options;
  options.rounds = parse_count("--kept", kept_, 1, 1'000'000);
  options.seed = seed();
  if (!payload_.empty()) options.payload = stress::Payload::parse("--payload", payload_);
  if (fault_ == "gpu") {
    options.kill = 0;
    options.fault = 1;
  } else if (!fault_.empty() && fault_ != "kill") {
    options.kill = 0;
    for (const Setting& fault : parse_settings("--fault", fault_)) {
      double* const probability = fault.name == "kill"    ? &options.kill
                                  : fault.name == "crash" ? &options.crash
                                  : fault.name == "gpu"   ? &options.fault
                                                          : nullptr;
      if (probability == nullptr)
        throw ArgumentError("--fault: with --kept it is kill, crash or gpu, not '" + std::string(fault.name) + "'");
      *probability = parse_probability("--fault: " + std::string(fault.name), fault.value);
    }
    if (options.kill + options.crash + options.fault > 1 + 1e-9)
      throw ArgumentError("--fault: the probabilities together are more than 1");
  }
  refuse_options("--kept", {"--seconds", "--operations", "--rounds", "--mix", "--json", "--trace", "--metrics",
                            "--clients", "--flight-recorder", "--world", "--processes"});
  options.flawed = kept_flaw_;
  options.devices = parse_devices("--devices", devices_);
  if (options.fault > 0 && !are_gpus(options.devices)) throw ArgumentError("--fault: gpu needs GPUs, such as cuda:0");
  return options;
}

ExitCode StressCommand::run_kept(std::ostream& out, std::ostream& err) const {
  const stress::KeptStress options = kept_options();
  try {
    if (!kept_book_.empty()) {
      const stress::MappedKeptBook book(kept_book_, stress::MappedKeptBook::Open::Existing);
      const char* const restart = std::getenv("COX_RESTART");
      const std::uint64_t round = restart == nullptr ? 0 : std::strtoull(restart, nullptr, 10);
      return static_cast<ExitCode>(stress::run_kept_round(options, round, *book));
    }
    std::vector<std::string> program{std::filesystem::read_symlink("/proc/self/exe"),
                                     "stress",
                                     "--devices",
                                     devices_,
                                     "--kept",
                                     kept_,
                                     "--seed",
                                     std::to_string(options.seed),
                                     "--fault",
                                     "kill=" + std::to_string(options.kill) + ",crash=" +
                                         std::to_string(options.crash) + ",gpu=" + std::to_string(options.fault)};
    if (!payload_.empty()) program.insert(program.end(), {"--payload", payload_});
    if (kept_flaw_) program.emplace_back("--kept-flaw");
    program.emplace_back("--kept-book");
    std::ostringstream reports;
    const stress::KeptStressResult result = stress::run_kept_stress(options, std::move(program), standby_, reports);
    if (!result.ok()) err << reports.str();
    if (!quiet_ || !result.ok()) out << "seed " << options.seed << "\n" << result.to_string() << std::flush;
    return result.ok() ? ExitCode::Ok : ExitCode::Violation;
  } catch (const std::system_error& error) {
    err << command_name << ": " << error.what() << "\n";
    return ExitCode::Violation;
  }
}

ExitCode StressCommand::run(std::ostream& out, std::ostream& err) const {
  if (!kept_.empty()) return run_kept(out, err);
  if (!worlds_.empty()) return run_worlds(out, err);
  stress::Options options = this->options();
  const WorldPlace place = discover();
  require_shareable(options, place.processes > 1);
  if (are_gpus(options.devices)) {
    options.devices = part_of_process(options.devices, place);
    start_driver_threads(options.devices);
  }
  const std::unique_ptr<stress::StressWorld> world = stress::StressWorld::join(options.devices);
  share(options, world.get());
  if (!mix_.empty() && options.mix.has_collectives() && options.ranks().size() < 2)
    throw ArgumentError("--mix: transfers and collectives need two devices or more");
  require_suitable_settings(options);
  options.scarce_pinned_memory = has_scarce_pinned_memory(options);
  std::string metrics;
  if (!metrics_.empty()) options.on_idle = [&metrics] { metrics = metrics::text(); };
  const TraceScope tracing(!trace_.empty());
  const std::string recorders = flight_recorder_.empty() ? standard_recorder_file() : file_of(flight_recorder_);
  stress::Report report;
  const Interruption interruption;  // also while the results are written
  {
    DumpRequest request;
    options.on_poll = [&] {
      if (!request.take()) return;
      write_flight_recorders(recorders, err);
      if (flight_recorder_.empty()) err << command_name << ": flight recorders: " << recorders << "\n" << std::flush;
    };
    options.on_violation = [&] { write_flight_recorders(recorders, err); };
    ProgressLine line(err, &err == &std::cerr && isatty(STDERR_FILENO) == 1);
    const auto show = [&line](const stress::Progress& progress) { line.show(progress); };
    report = stress_devices(std::move(options), interruption.flag(),
                            quiet_ || process_ != 0 ? stress::ProgressSink() : show);
  }
  // Write the files first: standard output may be a pipe that no process reads any more.
  const bool files[] = {write_json(report, err), write_trace(err), write_metrics(metrics, err)};
  if (process_ != 0) {  // process 0 has reported what all have done
    if (!report.ok()) out << "process " << process_ << " of the world\n" << verdict(report, recorders) << std::flush;
  } else if (json_ == standard_output) {
    out << json(report) << std::flush;
    if (!quiet_) err << verdict(report, recorders) << std::flush;
  } else {
    if (!quiet_) out << table(report);
    out << verdict(report, recorders) << std::flush;
  }
  ExitCode code =
      report.ok() && std::ranges::find(files, false) == std::end(files) ? ExitCode::Ok : ExitCode::Violation;
  if (!report.shortage().empty()) code = ExitCode::NoDevice;
  if (report.abandoned) std::_Exit(static_cast<int>(code));
  return code;
}

bool StressCommand::write_json(const stress::Report& report, std::ostream& err) const {
  if (json_.empty() || json_ == standard_output || process_ != 0) return true;
  return is_written(write_file(json_, json(report)), command_name, "--json", json_, err);
}

bool StressCommand::write_trace(std::ostream& err) const {
  if (trace_.empty()) return true;
  const auto write = [](const std::string& path) {
    errno = 0;
    try {
      trace::write_chrome_trace(path, trace::stop());
      return std::error_code();
    } catch (const Error&) {
      return std::error_code(errno != 0 ? errno : EIO, std::generic_category());
    }
  };
  const std::string file = file_of(trace_);
  return is_written(replace_file(file, write), command_name, "--trace", file, err);
}

void StressCommand::write_flight_recorders(const std::string& path, std::ostream& err) const {
  const std::string text = dump_flight_recorders() + "\n";
  static_cast<void>(is_written(write_file(path, text), command_name, "--flight-recorder", path, err));
}

bool StressCommand::write_metrics(const std::string& text, std::ostream& err) const {
  const std::string file = file_of(metrics_);
  return file.empty() || is_written(write_file(file, text), command_name, "--metrics", file, err);
}

}  // namespace cox::tools
