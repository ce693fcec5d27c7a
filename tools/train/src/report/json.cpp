#include <report/json.hpp>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace train {

void write_json(const std::filesystem::path& file, const Options& options, const Outcome& outcome) {
  const auto close = [](std::FILE* out) { std::fclose(out); };
  const std::unique_ptr<std::FILE, decltype(close)> out(std::fopen(file.c_str(), "w"), close);
  const auto fail = [&] { throw std::runtime_error("cannot write " + file.string()); };
  if (out == nullptr) fail();
  const ModelShape& shape = options.shape;
  const std::size_t replicas = options.layout == Layout::Pipeline ? 1 : options.devices;
  const std::size_t tokens = replicas * options.micro_batches * options.batch * shape.context;
  std::fprintf(out.get(),
               "{\"version\": 1, \"devices\": %zu, \"type\": \"%s\", \"layers\": %zu, \"heads\": %zu, \"width\": %zu, "
               "\"context\": %zu, \"vocabulary\": %zu, \"batch\": %zu, \"micro_batches\": %zu, \"tokens\": %zu,\n"
               " \"steps\": [",
               options.devices, options.precision == Precision::Bfloat16 ? "bf16" : "fp32", shape.layers, shape.heads,
               shape.width, shape.context, shape.vocabulary, options.batch, options.micro_batches, tokens);
  const char* separator = "\n";
  for (const StepRecord& record : outcome.times) {
    const double seconds = record.times.step.count();
    const std::string hidden =
        record.times.measured ? std::to_string(1e3 * record.times.not_hidden.count()) : std::string("null");
    std::fprintf(out.get(),
                 "%s  {\"step\": %zu, \"loss\": %.7g, \"ms\": %.4f, \"tokens_per_second\": %.1f, "
                 "\"communication_not_hidden_ms\": %s}",
                 separator, record.step, static_cast<double>(outcome.losses[record.step - 1]), 1e3 * seconds,
                 static_cast<double>(tokens) / seconds, hidden.c_str());
    separator = ",\n";
  }
  std::fprintf(
      out.get(),
      "\n ],\n \"memory\": {\"in_use\": %zu, \"peak_in_use\": %zu, \"reserved\": %zu, \"peak_reserved\": %zu}}\n",
      outcome.memory.bytes_in_use, outcome.memory.peak_bytes_in_use, outcome.memory.bytes_reserved,
      outcome.memory.peak_bytes_reserved);
  if (std::fflush(out.get()) != 0 || std::ferror(out.get()) != 0) fail();
}

}  // namespace train
