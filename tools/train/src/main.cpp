#include <checkpoint/checkpoint.hpp>
#include <data/text.hpp>
#include <engine/devices.hpp>
#include <engine/options.hpp>
#include <engine/training.hpp>
#include <report/json.hpp>
#include <report/report.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/host/server/host_options.hpp>
#ifdef TRAIN_CUDA
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#endif

#include <cinttypes>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

namespace {

// Exit codes. Wrong arguments: 2; GPUs that are lost: 86.
constexpr int ok = 0;
constexpr int wrong_result = 1;
constexpr int failed = 3;

// One line for each step: the number and the loss, as a decimal and exactly.
void write_losses(const std::filesystem::path& path, const std::vector<float>& losses) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) throw std::runtime_error("cannot write " + path.string());
  for (std::size_t i = 0; i < losses.size(); ++i)
    std::fprintf(file, "%zu %.6f %a\n", i + 1, static_cast<double>(losses[i]), static_cast<double>(losses[i]));
  if (std::fclose(file) != 0) throw std::runtime_error("cannot write " + path.string());
}

void print_plan(const train::Options& options, const train::Text& text) {
  const std::size_t parameters = train::ParameterList(options.shape, train::stage_of(options.shape, 0, 1)).elements();
  std::printf("model: %zu layers, %zu heads, width %zu, context %zu, %zu parameters\n", options.shape.layers,
              options.shape.heads, options.shape.width, options.shape.context, parameters);
  std::printf("text:  %zu characters, %zu different\n", text.tokens().size(), text.vocabulary());
  std::printf("step:  %zu devices, %zu micro-batches of %zu samples on each\n", options.devices, options.micro_batches,
              options.batch);
}

int print_outcome(const train::Options& options, const train::Outcome& outcome) {
  if (outcome.restarts > 0) std::printf("failures after which training continued: %zu\n", outcome.restarts);
  if (!outcome.completed) {
    std::puts("training failed");
    return failed;
  }
  int code = ok;
  if (!options.checkpoints.empty()) {
    std::printf("checkpoints: %zu written, %zu failed\n", outcome.checkpoints_written, outcome.checkpoints_failed);
    if (outcome.checkpoints_failed > 0) code = wrong_result;
  }
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
    code = wrong_result;
  }
  if (!outcome.loss_fell()) {
    std::puts("the loss did NOT fall");
    code = wrong_result;
  }
  return code;
}

int run(train::Options options) {
  const train::Text text = train::Text::from_file(options.text, options.shape.context);
  if (options.shape.vocabulary == 0) options.shape.vocabulary = text.vocabulary();
  if (options.shape.vocabulary < text.vocabulary())
    throw std::runtime_error("--vocabulary: the text has " + std::to_string(text.vocabulary()) +
                             " different characters");
  if (options.device_type == train::host_type) cox::set_host_device_count(static_cast<std::uint16_t>(options.devices));
  if (!options.timeout.empty()) cox::set_settings({{"collectives.timeout", options.timeout}});
  std::string why_not;
  if (!options.report_file.empty() && !train::can_report(why_not)) throw std::runtime_error(why_not);
  print_plan(options, text);
  const train::Outcome outcome =
      train::run_training(options, text, train::checksum(std::as_bytes(std::span(text.tokens()))));
  const int code = print_outcome(options, outcome);
  if (!options.losses_file.empty()) write_losses(options.losses_file, outcome.losses);
  if (!options.json_file.empty() && outcome.completed) train::write_json(options.json_file, options, outcome);
  if (!options.report_file.empty() && outcome.completed) train::write_report(options.report_file, options, outcome);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // in order with the standard error stream, also in a file
  int code = failed;
  try {
    code = run(train::parse_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cox-train: %s\n", error.what());
  }
  cox::shutdown_all();
#ifdef TRAIN_CUDA
  code = cox::exit_code(code);  // a program that has lost its GPUs ends with a code of its own: see cox run
#endif
  return code;
}
