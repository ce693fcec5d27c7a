#include <engine/devices.hpp>
#include <report/report.hpp>
#include <report/time_line.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

namespace train {
namespace {

const std::filesystem::path dygraphs = "/usr/share/javascript/dygraphs";

constexpr const char* style = R"(
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1000px; padding: 0 1em; color: #222; }
  h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
  table { border-collapse: collapse; } td { padding: 0.1em 1.5em 0.1em 0; } td + td { font-variant-numeric: tabular-nums; }
  .chart { width: 100%; height: 320px; }
  svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: #444; }
  rect { fill: #9aa0a6; } rect.product { fill: #4e79a7; } rect.backward { fill: #76b7b2; }
  rect.update { fill: #b07aa1; } rect.exchange { fill: #e15759; }
  .key span { display: inline-block; width: 0.8em; height: 0.8em; margin: 0 0.3em 0 1em; }
)";

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
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
      std::to_string(shape.layers) + " layers, " + std::to_string(shape.heads) + " heads, width " +
          std::to_string(shape.width) + ", context " + std::to_string(shape.context));
  row(out, "devices",
      std::to_string(options.devices) + (options.device_type == host_type ? " host devices" : " GPUs") + layout +
          (options.captured ? ", captured step" : ""));
  row(out, "batch",
      std::to_string(options.micro_batches) + " micro-batches of " + std::to_string(options.batch) + " samples");
  row(out, "loss of the first step", outcome.losses.front());
  row(out, "loss of the last step", outcome.losses.back());
  row(out, "evaluation loss", outcome.evaluation_loss);
  row(out, "failures after which training continued", outcome.restarts);
  if (options.layout != Layout::Pipeline)
    row(out, "replicas", outcome.replicas_identical() ? "identical bit by bit" : "DIFFERENT");
  out << "</table>\n";
}

// A chart of dygraphs: `rows` are the lines of a JavaScript array.
void write_chart(std::ostream& out, const char* id, const std::string& rows, const char* labels, const char* unit) {
  out << "<div class=\"chart\" id=\"" << id << "\"></div>\n<script>\nnew Dygraph(document.getElementById('" << id
      << "'), [\n"
      << rows << "], {labels: " << labels << ", xlabel: 'step', ylabel: '" << unit
      << "', legend: 'always', strokeWidth: 1.5});\n</script>\n";
}

}  // namespace

bool can_report(std::string& why_not) {
  if (std::filesystem::exists(dygraphs / "dygraph.min.js")) return true;
  why_not = "--report needs the Debian package libjs-dygraphs: there is no " + dygraphs.string();
  return false;
}

void write_report(const std::filesystem::path& file, const Options& options, const Outcome& outcome) {
  std::string why_not;
  if (!can_report(why_not)) throw std::runtime_error(why_not);
  std::ostringstream losses;
  for (std::size_t i = 0; i < outcome.losses.size(); ++i) losses << '[' << i + 1 << ',' << outcome.losses[i] << "],\n";
  std::ostringstream times;
  for (const StepRecord& step : outcome.times) {
    times << '[' << step.step << ',' << 1e3 * step.times.step.count() << ',';
    if (step.times.measured) {
      times << 1e3 * step.times.not_hidden.count();
    } else {
      times << "null";
    }
    times << "],\n";
  }

  std::ofstream out(file);
  out << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>cox-train</title>\n<style>"
      << content(dygraphs / "dygraph.min.css") << style << "</style>\n<script>\n"
      << content(dygraphs / "dygraph.min.js") << "\n</script>\n</head>\n<body>\n<h1>cox-train</h1>\n";
  write_table(out, options, outcome);
  out << "<h2>Loss</h2>\n";
  write_chart(out, "loss", losses.str(), "['step', 'loss']", "loss");
  out << "<h2>Time of a step</h2>\n";
  write_chart(out, "times", times.str(), "['step', 'step', 'communication not hidden']", "ms");
  if (const std::string drawing = time_line(outcome.traced); !drawing.empty()) {
    out << "<h2>Time line of step " << outcome.traced_step << "</h2>\n"
        << "<p class=\"key\"><span style=\"background:#4e79a7\"></span>matrix products"
        << "<span style=\"background:#76b7b2\"></span>other kernels of the backward pass"
        << "<span style=\"background:#b07aa1\"></span>optimizer"
        << "<span style=\"background:#e15759\"></span>collectives and transfers"
        << "<span style=\"background:#9aa0a6\"></span>other</p>\n"
        << drawing;
  }
  out << "</body>\n</html>\n";
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

}  // namespace train
