#include <coxswain/perf/harness/report.hpp>

#include <coxswain/perf/harness/machine.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace cox::perf {

namespace {

std::string number(double value) {
  char text[32];
  const double size = std::fabs(value);
  const int digits = size >= 1000 || value == std::floor(value) ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

nlohmann::ordered_json as_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

}  // namespace

void print_table(const Row& row) {
  std::printf("\n%s  %s  [%s]\n", row.figure.c_str(), row.name.c_str(), row.unit.c_str());
  std::printf("  %-26s %10s %10s %10s %8s\n", "", "median", "min", "max", "x ours");
  for (const std::string& name : row.contenders) {
    const Spread& spread = row.spreads.at(name);
    const double ratio = row.ratio(name);
    const auto note = row.notes.find(name);
    std::printf("%c %-26s %10s %10s %10s %8s  %s\n", name == row.ours ? '*' : ' ', name.c_str(),
                number(spread.median).c_str(), number(spread.min).c_str(), number(spread.max).c_str(),
                name == row.ours || std::isnan(ratio) ? "" : number(ratio).c_str(),
                note == row.notes.end() ? "" : note->second.c_str());
  }
  std::fflush(stdout);
}

void write_json(const std::string& path, const std::vector<Row>& rows, const Options& options) {
  const Machine machine = this_machine();
  auto all = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json one{{"figure", row.figure}, {"case", row.name}, {"unit", row.unit}};
    if (row.larger_is_better) one["larger_is_better"] = true;
    one["ours"] = nullptr;
    one["peers"] = nlohmann::ordered_json::object();
    one["ratio"] = nlohmann::ordered_json::object();
    for (const std::string& name : row.contenders) {
      const auto spread = as_json(row.spreads.at(name));
      if (name == row.ours) {
        one["ours"] = spread;
        one["ours_name"] = name;
        continue;
      }
      one["peers"][name] = spread;
      const double ratio = row.ratio(name);
      one["ratio"][name] = std::isnan(ratio) ? nlohmann::ordered_json() : nlohmann::ordered_json(ratio);
    }
    if (!row.notes.empty()) one["notes"] = row.notes;
    one["rounds"] = options.rounds;
    one["seed"] = options.seed;
    one["quick"] = options.quick;
    one["cores"] = machine.cores;
    one["invariant_tsc"] = machine.invariant_tsc;
    all.push_back(std::move(one));
  }
  std::ofstream file(path);
  file << all.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace cox::perf
