#include <engine/options.hpp>

#include <engine/devices.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <utility>

namespace train {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw CLI::ValidationError(why);  // CLI11 prints it, with exit code 105
}

std::size_t parse_count(const std::string& option, const std::string& text) {
  std::size_t value = 0;
  if (!CLI::detail::lexical_cast(text, value)) refuse(option + ": " + text + " is not a count");
  return value;
}

// "host:2": two host devices; "cuda:2": two GPUs.
void parse_devices(const std::string& text, Options& options) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon);
  if ((kind != "host" && kind != "cuda") || colon == text.size())
    refuse("--devices: " + text + " is neither host:COUNT nor cuda:COUNT");
  options.device_type = kind == "cuda" ? cuda_type : host_type;
  options.devices = parse_count("--devices", text.substr(colon + 1));
  if (options.devices == 0 || options.devices > max_local_devices)
    refuse("--devices: from 1 to " + std::to_string(max_local_devices) + " devices");
  options.local_devices = options.devices;
  options.first_device = first_device(options);
  if (const std::string why_not = missing_devices(options); !why_not.empty()) refuse("--devices: " + why_not);
}

// "kernel@12": the kernel fails in step 12.
std::pair<FaultKind, std::size_t> parse_fault(const std::string& text) {
  static const std::map<std::string, FaultKind> kinds{
      {"kernel", FaultKind::Kernel},     {"memory", FaultKind::Memory},   {"thread", FaultKind::Thread},
      {"shutdown", FaultKind::Shutdown}, {"missing", FaultKind::Missing}, {"crash", FaultKind::Crash},
      {"random", FaultKind::Random},     {"diverge", FaultKind::Diverge}, {"gpu", FaultKind::Gpu},
      {"update", FaultKind::Update},     {"kill", FaultKind::Kill},       {"trap", FaultKind::Trap},
      {"address", FaultKind::Address},   {"assert", FaultKind::Assert}};
  const std::size_t at = text.find('@');
  const auto kind = kinds.find(text.substr(0, at));
  if (at == std::string::npos || kind == kinds.end())
    refuse("--fault: " + text + " is not KIND@STEP with one of the kinds in README.md");
  const std::size_t step = parse_count("--fault", text.substr(at + 1));
  if (step == 0) refuse("--fault: steps are counted from 1");
  return {kind->second, step};
}

void check(const Options& options) {
  if (options.shape.width % options.shape.heads != 0) refuse("--width must be a multiple of --heads");
  if (options.layout == Layout::Pipeline && options.shape.tied)
    refuse("--pipeline needs --untied: the first and the last stage are different devices");
  if (options.optimizer.warm_up >= options.steps) refuse("--warm-up must be less than --steps");
  if (options.precision == Precision::Bfloat16 && options.device_type == host_type)
    refuse("--type bf16 needs GPUs (--devices cuda:COUNT): host devices compute with fp32");
  if ((options.fault == FaultKind::Gpu || is_random_gpu_fault(options.fault)) && options.device_type == host_type)
    refuse("this --fault needs GPUs");
  const bool waits = options.fault == FaultKind::Missing || options.fault == FaultKind::Random;
  if (waits && options.local_devices < 2)
    refuse("this --fault needs two devices or more: a rank that is missing waits until another one fails");
  if (waits && options.timeout.empty())
    refuse("this --fault needs --timeout: the other ranks wait that long for one that is missing");
  if (options.fault == FaultKind::Update && options.keep == Keep::No) refuse("--fault update needs --keep");
  if (options.resume && options.checkpoints.empty()) refuse("--resume needs --checkpoint");
}

}  // namespace

std::string counted(std::size_t count, const char* one, const char* several) {
  return std::to_string(count) + " " + (count == 1 ? one : several);
}

Options parse_options(int argc, const char* const* argv) {
  Options options;
  std::string devices = "host:2";
  std::string fault;
  bool untied = false;
  bool sharded = false;
  bool pipeline = false;
  bool separate = false;
  std::size_t bucket_kib = options.bucket_bytes >> 10U;

  CLI::App app(std::string("Trains a character-level transformer on devices of Coxswain. This program was built with") +
                   (has_cuda ? " support for GPUs." : "out support for GPUs."),
               "cox-train");
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto count = CLI::Range(std::size_t{1}, std::size_t{1} << 24U);
  app.add_option("--devices", devices,
                 "host:COUNT, or cuda:COUNT for GPUs; in a world (cox run --processes) those of each process");
  app.add_option("--type", options.precision, "Type of activations: fp32 or bf16 (GPUs only)")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, Precision>{{"fp32", Precision::Float32}, {"bf16", Precision::Bfloat16}}))
      ->option_text("fp32|bf16=fp32");
  app.add_option("--steps", options.steps, "Optimizer steps")->check(count);
  app.add_option("--text", options.text, "File to learn")->check(CLI::ExistingFile);
  app.add_option("--seed", options.seed, "Of initial values and samples");

  app.add_option("--layers", options.shape.layers, "Layers")->check(count)->group("Model");
  app.add_option("--heads", options.shape.heads, "Attention heads of a layer")->check(count)->group("Model");
  app.add_option("--width", options.shape.width, "Width of the residual stream")->check(count)->group("Model");
  app.add_option("--context", options.shape.context, "Characters that the model sees")->check(count)->group("Model");
  app.add_option("--vocabulary", options.shape.vocabulary,
                 "Rows of the token table, at least the number of different characters; 0: that number")
      ->group("Model");
  app.add_flag("--untied", untied, "The output layer has weights of its own")->group("Model");

  app.add_option("--batch", options.batch, "Samples of a micro-batch on each device")->check(count)->group("Step");
  app.add_option("--micro-batches", options.micro_batches, "Micro-batches of a step, whose gradients are accumulated")
      ->check(count)
      ->group("Step");
  app.add_option("--rate", options.optimizer.rate, "Highest learning rate")->group("Step");
  app.add_option("--last-rate", options.optimizer.last_rate, "Learning rate at the last step")->group("Step");
  const auto* const warm_up =
      app.add_option(
             "--warm-up", options.optimizer.warm_up,
             "Steps until the highest learning rate; half of --steps if these are 20 or fewer and it is not given")
          ->group("Step");
  app.add_option("--decay", options.optimizer.decay, "Weight decay")->group("Step");
  app.add_option("--clip", options.optimizer.clip, "Largest norm of the gradients")->group("Step");

  auto* const as_shards =
      app.add_flag("--sharded", sharded, "Each device updates its share of the parameters")->group("Devices");
  app.add_flag("--pipeline", pipeline, "Each device has its share of the layers")
      ->excludes(as_shards)
      ->group("Devices");
  app.add_flag("--captured", options.captured, "Record one step as a graph and replay it")->group("Devices");
  app.add_option("--bucket-kib", bucket_kib, "KiB of gradients that are reduced together")
      ->check(count)
      ->group("Devices");
  app.add_flag("--separate-gradients", separate, "Each gradient is an allocation of its own, not a part of its bucket")
      ->excludes(as_shards)
      ->group("Devices");
  app.add_option("--timeout", options.timeout, "How long a collective waits for a missing rank, such as 2s")
      ->group("Devices");

  app.add_option("--checkpoint", options.checkpoints, "Folder for checkpoints")->group("Checkpoints and failures");
  app.add_option("--every", options.checkpoint_every, "Steps from one checkpoint to the next")
      ->check(count)
      ->group("Checkpoints and failures");
  app.add_flag("--resume", options.resume, "Continue after the newest checkpoint")->group("Checkpoints and failures");
  app.add_option("--stop-after", options.stop_after, "End after this step, as if the process had been interrupted")
      ->group("Checkpoints and failures");
  app.add_option("--restarts", options.restarts, "Failures after which training continues from a checkpoint")
      ->group("Checkpoints and failures");
  app.add_option(
         "--keep", options.keep,
         "The state outlives the process under cox run: in-place (one copy, which is torn if the process ends in "
         "an update; the default of this option) or double (two copies)")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, Keep>{{"in-place", Keep::InPlace}, {"double", Keep::Double}}))
      ->expected(0, 1)
      ->default_str("in-place")
      ->option_text("[in-place|double]")
      ->group("Checkpoints and failures");
  app.add_option("--fault", fault,
                 "For tests: kernel, memory, thread, shutdown, missing, crash, gpu, diverge, update or random, @, and "
                 "the step; kill, trap, address or assert, @, and the mean time in milliseconds")
      ->group("Checkpoints and failures");

  app.add_option("--log-every", options.log_every, "Steps from one progress line to the next; 0: none")
      ->group("Output");
  app.add_option("--losses", options.losses_file, "File for the loss of each step, exact to the bit")->group("Output");
  app.add_option("--json", options.json_file, "File for loss, times and memory of each step")->group("Output");
  app.add_option("--report", options.report_file, "File for a page (HTML) with losses, step times and a time line")
      ->group("Output");
  app.add_option("--evaluate", options.evaluation_windows, "Windows of held-out text that are evaluated")
      ->group("Output");

  try {
    app.parse(argc, argv);
    parse_devices(devices, options);
    if (!fault.empty()) std::tie(options.fault, options.fault_step) = parse_fault(fault);
    if (warm_up->count() == 0 && options.optimizer.warm_up >= options.steps)
      options.optimizer.warm_up = options.steps / 2;
    options.shape.tied = !untied;
    options.layout = sharded ? Layout::Sharded : pipeline ? Layout::Pipeline : Layout::Replicated;
    options.bucket_bytes = bucket_kib << 10U;
    options.owned_buckets = !separate;
    check(options);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

void check_devices(const Options& options) {
  const bool pipeline = options.layout == Layout::Pipeline;
  if (options.layout == Layout::Sharded && options.shape.width % options.devices != 0)
    throw WrongArguments("--sharded: --width must be a multiple of the number of devices");
  if (pipeline && options.devices < 2) throw WrongArguments("--pipeline needs two devices or more");
  if (pipeline && options.shape.layers < options.devices)
    throw WrongArguments("--pipeline needs a layer for each device");
}

std::string fingerprint(const Options& options, std::uint64_t text_checksum) {
  const ModelShape& shape = options.shape;
  const OptimizerOptions& o = options.optimizer;
  std::string text;
  const auto add = [&](const char* name, auto value) {
    text.append(text.empty() ? "" : " ").append(name).append("=").append(std::to_string(value));
  };
  add("device-type", options.device_type);
  add("type", static_cast<int>(options.precision));
  add("devices", options.devices);
  add("layout", static_cast<int>(options.layout));
  add("vocabulary", shape.vocabulary);
  add("context", shape.context);
  add("layers", shape.layers);
  add("heads", shape.heads);
  add("width", shape.width);
  add("tied", static_cast<int>(shape.tied));
  add("owned-buckets", static_cast<int>(options.owned_buckets));
  add("bucket-bytes", options.bucket_bytes);
  add("batch", options.batch);
  add("micro-batches", options.micro_batches);
  add("steps", options.steps);
  add("seed", options.seed);
  add("rate", o.rate);
  add("last-rate", o.last_rate);
  add("warm-up", o.warm_up);
  add("decay", o.decay);
  add("clip", o.clip);
  add("text", text_checksum);
  return text;
}

}  // namespace train
