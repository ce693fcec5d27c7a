#include <checkpoint/checkpoint.hpp>
#include <data/text.hpp>
#include <engine/devices.hpp>
#include <engine/fault.hpp>
#include <engine/options.hpp>
#include <engine/processes.hpp>
#include <engine/training.hpp>
#include <report/json.hpp>
#include <report/report.hpp>

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/host/server/host_options.hpp>
#ifdef TRAIN_CUDA
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#endif

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

namespace {

// Exit codes. GPUs that are lost: 86.
constexpr int ok = 0;
constexpr int wrong_result = 1;
constexpr int wrong_arguments = 2;
constexpr int failed = 3;
constexpr int world_gone = 87;  // all processes of the world must be started again: see cox run --processes

// One line for each step: the number and the loss, as a decimal and exactly.
void write_losses(const std::filesystem::path& path, const std::vector<float>& losses) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) throw std::runtime_error("cannot write " + path.string());
  for (std::size_t i = 0; i < losses.size(); ++i)
    std::fprintf(file, "%zu %.6f %a\n", i + 1, static_cast<double>(losses[i]), static_cast<double>(losses[i]));
  if (std::fclose(file) != 0) throw std::runtime_error("cannot write " + path.string());
}

void print_plan(const train::Options& options, const train::Text& text, const train::Processes& processes) {
  const std::size_t parameters = train::ParameterList(options.shape, train::stage_of(options.shape, 0, 1)).elements();
  std::printf("model: %s, %s, width %zu, context %zu, %zu parameters\n",
              train::counted(options.shape.layers, "layer", "layers").c_str(),
              train::counted(options.shape.heads, "head", "heads").c_str(), options.shape.width, options.shape.context,
              parameters);
  std::printf("text:  %zu characters, %zu different\n", text.tokens().size(), text.vocabulary());
  const std::string of_processes =
      processes.count() > 1 ? " of " + std::to_string(processes.count()) + " processes" : "";
  std::printf("step:  %s%s, %s of %s on each\n", train::counted(options.devices, "device", "devices").c_str(),
              of_processes.c_str(), train::counted(options.micro_batches, "micro-batch", "micro-batches").c_str(),
              train::counted(options.batch, "sample", "samples").c_str());
}

int code_of(const train::Options& options, const train::Outcome& outcome) {
  if (!outcome.completed) return outcome.needs_new_world ? world_gone : failed;
  const bool same = options.layout == train::Layout::Pipeline || outcome.replicas_identical();
  return same && outcome.loss_fell && outcome.checkpoints_failed == 0 ? ok : wrong_result;
}

void print_outcome(const train::Options& options, const train::Outcome& outcome) {
  if (outcome.restarts > 0) std::printf("failures after which training continued: %zu\n", outcome.restarts);
  if (!outcome.completed) {
    std::puts(outcome.needs_new_world ? "training failed: all processes of the world must be started again"
                                      : "training failed");
    return;
  }
  if (!options.checkpoints.empty())
    std::printf("checkpoints: %zu written, %zu failed\n", outcome.checkpoints_written, outcome.checkpoints_failed);
  std::printf("final loss: %.4f (first step: %.4f)\n", static_cast<double>(outcome.losses.back()),
              static_cast<double>(outcome.losses.front()));
  if (outcome.evaluated > 0)
    std::printf("evaluation loss: %.4f on %zu held-out characters\n", outcome.evaluation_loss, outcome.evaluated);
  if (options.layout == train::Layout::Pipeline) {
    for (std::size_t i = 0; i < outcome.checksums.size(); ++i)
      std::printf("stage %zu: parameters %016" PRIx64 "\n", i, outcome.checksums[i]);
  } else if (outcome.replicas_identical()) {
    std::printf("replicas: %zu, identical bit by bit: %016" PRIx64 "\n", outcome.checksums.size(),
                outcome.checksums.front());
  } else {
    for (std::size_t i = 0; i < outcome.checksums.size(); ++i)
      std::printf("replicas DIFFER: rank %zu has %016" PRIx64 "\n", i, outcome.checksums[i]);
  }
  if (!outcome.loss_fell) std::puts("the loss did NOT fall");
}

void write_files(const train::Options& options, const train::Outcome& outcome) {
  if (!options.losses_file.empty()) write_losses(options.losses_file, outcome.losses);
  if (!options.json_file.empty() && outcome.completed) train::write_json(options.json_file, options, outcome);
  if (!options.report_file.empty() && outcome.completed) train::write_report(options.report_file, options, outcome);
}

int run(train::Options options) {
  const train::Text text = train::Text::from_file(options.text, options.shape.context);
  if (options.shape.vocabulary == 0) options.shape.vocabulary = text.vocabulary();
  if (options.shape.vocabulary < text.vocabulary())
    throw train::WrongArguments("--vocabulary: the text has " + std::to_string(text.vocabulary()) +
                                " different characters");
  if (options.device_type == train::host_type)
    cox::set_host_device_count(static_cast<std::uint16_t>(options.local_devices));
  if (!options.timeout.empty()) cox::set_settings({{"collectives.timeout", options.timeout}});
  std::string why_not;
  if (!options.report_file.empty() && !train::can_report(why_not)) throw train::WrongArguments(why_not);
  if (options.fault == train::FaultKind::Kill) train::kill_at_random(std::chrono::milliseconds(options.fault_step));
  const train::Processes processes(options);  // left at the end, before the devices are shut down
  train::check_devices(options);
  if (processes.is_first()) print_plan(options, text, processes);
  const train::Outcome outcome =
      train::run_training(options, text, train::checksum(std::as_bytes(std::span(text.tokens()))), processes);
  if (processes.is_first()) {
    print_outcome(options, outcome);
    write_files(options, outcome);
  }
  return code_of(options, outcome);
}

int code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const train::WrongArguments& wrong) {
    std::fprintf(stderr, "cox-train: %s\n", wrong.what());
    return wrong_arguments;
  } catch (const train::WorldFailed& lost) {
    std::fprintf(stderr, "cox-train: %s\n", lost.what());
    return world_gone;
  } catch (const std::exception&) {
    std::fprintf(stderr, "cox-train: %s\n", cox::error_chain(error).c_str());
    return failed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // in order with the standard error stream, also in a file
  int code = failed;
  try {
    code = run(train::parse_options(argc, argv));
  } catch (const std::exception&) {
    code = code_of(std::current_exception());
  }
  cox::shutdown_all();
#ifdef TRAIN_CUDA
  code = cox::exit_code(code);  // a program that has lost its GPUs ends with a code of its own: see cox run
#endif
  return code;
}
