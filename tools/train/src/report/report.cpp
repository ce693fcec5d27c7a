#include <engine/devices.hpp>
#include <report/report.hpp>
#include <report/time_line.hpp>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace train {
namespace {

const std::filesystem::path dygraphs = "/usr/share/javascript/dygraphs";

constexpr const char* style = R"(
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1000px; padding: 0 1em; color: #222; }
  h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
  table { border-collapse: collapse; } td { padding: 0.1em 1.5em 0.1em 0; } td + td { font-variant-numeric: tabular-nums; }
  .chart { width: 100%; height: 320px; } .legend { min-height: 1.5em; text-align: right; }
  .scrolled { overflow-x: auto; } svg { width: 100%; min-width: 800px; height: auto; }
  svg text { font-size: 12px; fill: #444; } svg line { stroke: #ddd; }
  .key span { display: inline-block; margin-right: 1.2em; }
  .key i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.3em; }
)";

// Without its last line, if that names another file for debuggers.
std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  for (const char* const comment : {"//# sourceMappingURL=", "/*# sourceMappingURL="})
    if (const std::size_t at = text.rfind(comment); at != std::string::npos) text.erase(at);
  return text;
}

// One row of the table of results.
template <class Value>
void row(std::ostream& out, const char* name, const Value& value) {
  out << "<tr><td>" << name << "</td><td>" << value << "</td></tr>\n";
}

void write_table(std::ostream& out, const Options& options, const Outcome& outcome) {
  const ModelShape& shape = options.shape;
  const char* const layout = options.layout == Layout::Sharded    ? ", sharded optimizer"
                             : options.layout == Layout::Pipeline ? ", pipeline"
                                                                  : ", replicated";
  out << "<table>\n";
  row(out, "model",
      counted(shape.layers, "layer", "layers") + ", " + counted(shape.heads, "head", "heads") + ", width " +
          std::to_string(shape.width) + ", context " + std::to_string(shape.context));
  row(out, "devices",
      (options.device_type == host_type ? counted(options.devices, "host device", "host devices")
                                        : counted(options.devices, "GPU", "GPUs")) +
          layout + (options.captured ? ", captured step" : ""));
  row(out, "batch",
      counted(options.micro_batches, "micro-batch", "micro-batches") + " of " +
          counted(options.batch, "sample", "samples"));
  row(out, "loss of the first step", outcome.losses.front());
  row(out, "loss of the last step", outcome.losses.back());
  if (outcome.evaluated > 0) row(out, "evaluation loss", outcome.evaluation_loss);
  row(out, "failures after which training continued", outcome.restarts);
  if (options.layout != Layout::Pipeline)
    row(out, "replicas", outcome.replicas_identical() ? "identical bit by bit" : "DIFFERENT");
  out << "</table>\n";
}

// A chart of dygraphs: `rows` are the lines of a JavaScript array. `options`: more options of the chart.
void write_chart(std::ostream& out, const std::string& id, const std::string& rows, const char* labels,
                 const char* options) {
  out << "<div class=\"legend\" id=\"" << id << "-legend\"></div>\n<div class=\"chart\" id=\"" << id
      << "\"></div>\n<script>\nnew Dygraph(document.getElementById('" << id << "'), [\n"
      << rows << "], {labels: " << labels << ", xlabel: 'step', legend: 'always', labelsDiv: '" << id
      << "-legend', strokeWidth: 1.5, " << options << "});\n</script>\n";
}

// The durations of the steps, and communication if it was measured: not if only in the step before a capture.
void write_times(std::ostream& out, const std::vector<StepRecord>& steps) {
  const bool measured = std::ranges::count_if(steps, [](const StepRecord& step) { return step.times.measured; }) > 1;
  std::ostringstream rows;
  for (const StepRecord& step : steps) {
    rows << '[' << step.step << ',' << 1e3 * step.times.step.count();
    if (measured && step.times.measured) {
      rows << ',' << 1e3 * step.times.not_hidden.count();
    } else if (measured) {
      rows << ",null";
    }
    rows << "],\n";
  }
  write_chart(out, "times", rows.str(),
              measured ? "['step', 'step time', 'communication not hidden']" : "['step', 'step time']",
              "ylabel: 'ms', includeZero: true");
}

}  // namespace

bool can_report(std::string& why_not) {
  if (std::filesystem::exists(dygraphs / "dygraph.min.js")) return true;
  why_not = "--report: there is no " + dygraphs.string() + "; apt-get install libjs-dygraphs";
  return false;
}

void write_report(const std::filesystem::path& file, const Options& options, const Outcome& outcome) {
  std::string why_not;
  if (!can_report(why_not)) throw std::runtime_error(why_not);
  std::ostringstream losses;
  for (std::size_t i = 0; i < outcome.losses.size(); ++i) losses << '[' << i + 1 << ',' << outcome.losses[i] << "],\n";

  std::ofstream out(file);
  out << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>cox-train</title>\n<style>"
      << content(dygraphs / "dygraph.min.css") << style << "</style>\n<script>\n"
      << content(dygraphs / "dygraph.min.js") << "\n</script>\n</head>\n<body>\n<h1>cox-train</h1>\n";
  write_table(out, options, outcome);
  out << "<h2>Loss</h2>\n";
  write_chart(out, "loss", losses.str(), "['step', 'loss']", "ylabel: 'loss'");
  out << "<h2>Time of a step</h2>\n";
  write_times(out, outcome.times);
  const auto traced = std::ranges::find(outcome.times, outcome.traced_step, &StepRecord::step);
  if (traced != outcome.times.end()) {
    const std::string drawing = time_line(outcome.traced, traced->times.step);
    out << "<h2>Time line of step " << outcome.traced_step << "</h2>\n"
        << (drawing.empty() ? "<p>The trace has no streams: those of GPUs are not recorded.</p>\n" : drawing);
  }
  out << "</body>\n</html>\n";
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

}  // namespace train
