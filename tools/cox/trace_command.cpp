#include <coxswain/tools/cox/trace_command.hpp>

#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/output_file.hpp>
#include <coxswain/tools/cox/trace/merge_traces.hpp>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace cox::tools {
namespace {

ProcessTrace read(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw ArgumentError("'" + file + "' cannot be read");
  nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  if (json.is_discarded()) throw ArgumentError("'" + file + "' is no JSON");
  return {.file = file, .json = std::move(json)};
}

}  // namespace

TraceCommand::TraceCommand(CLI::App& app)
    : command_(*app.add_subcommand("trace", "Merge the traces that the processes of a world have written")) {
  command_.add_option("FILES", files_, "The files of the processes: trace.0.json, trace.1.json, ...")->required();
  command_.add_option("--output", output_, "Write the merged trace to this file; -: to standard output")->required();
}

bool TraceCommand::chosen() const { return command_.parsed(); }

ExitCode TraceCommand::run(std::ostream& out, std::ostream& err) const {
  const bool to_file = output_ != standard_output;
  for (const std::string& file : files_) {
    std::error_code ignored;  // one of them does not exist
    if (to_file && std::filesystem::equivalent(file, output_, ignored))
      throw ArgumentError("--output: '" + output_ + "' is the file '" + file + "' that is to be merged");
  }
  if (to_file) require_writable("--output", output_);
  std::vector<ProcessTrace> traces;
  for (const std::string& file : files_) traces.push_back(read(file));
  std::string merged;
  try {
    merged = merge_traces(std::move(traces)).dump();
  } catch (const std::runtime_error& error) {
    throw ArgumentError(error.what());
  }
  if (!to_file) {
    out << merged << "\n";
    return ExitCode::Ok;
  }
  return is_written(write_file(output_, merged), "cox trace", "--output", output_, err) ? ExitCode::Ok
                                                                                        : ExitCode::Violation;
}

}  // namespace cox::tools
