#include <coxswain/perf/harness/suite.hpp>

#include <coxswain/perf/harness/fresh_process.hpp>
#include <coxswain/perf/harness/machine.hpp>
#include <coxswain/perf/harness/report.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <random>
#include <regex>
#include <utility>

namespace cox::perf {

double Row::ratio(const std::string& contender) const {
  const auto own = spreads.find(ours);
  if (own == spreads.end() || !(own->second.median > 0)) return std::numeric_limits<double>::quiet_NaN();
  return spreads.at(contender).median / own->second.median;
}

Suite::Suite(Options options, std::string ours)
    : options_(std::move(options)), ours_(options_.ours.empty() ? std::move(ours) : options_.ours) {}

void Suite::add(Case added) {
  const std::regex wanted(options_.contenders);
  std::erase_if(added.contenders, [&](const Contender& contender) {
    return contender.name != ours_ && !std::regex_search(contender.name, wanted);
  });
  cases_.push_back(std::move(added));
}

int Suite::run() {
  if (!options_.sample.empty()) return print_sample(options_.sample[0], options_.sample[1]);
  const std::regex wanted(options_.filter);
  std::erase_if(cases_, [&](const Case& one) { return !std::regex_search(one.figure + ' ' + one.name, wanted); });
  if (cases_.empty()) {
    std::fprintf(stderr, "no case matches %s\n", options_.filter.c_str());
    return 2;
  }
  if (options_.list) return list();

  std::printf("%s; %u rounds, seed %llu; ours: %s\n", describe(this_machine()).c_str(), options_.rounds,
              static_cast<unsigned long long>(options_.seed), ours_.c_str());
  std::vector<Row> rows;
  for (const Case& one : cases_) {
    for (Row& row : measure(one)) {
      print_table(row);
      rows.push_back(std::move(row));
    }
  }
  if (!options_.json.empty()) write_json(options_.json, rows, options_);
  return failed_ ? 1 : 0;
}

int Suite::list() const {
  for (const Case& one : cases_) {
    std::printf("%s %s:", one.figure.c_str(), one.name.c_str());
    for (const Contender& contender : one.contenders) std::printf(" %s", contender.name.c_str());
    std::printf("\n");
  }
  return 0;
}

int Suite::print_sample(const std::string& name, const std::string& contender) const {
  for (const Case& one : cases_) {
    for (const Contender& candidate : one.contenders) {
      if (one.figure + ' ' + one.name != name || candidate.name != contender) continue;
      for (const double value : candidate.run()) std::printf("%.17g ", value);
      return 0;
    }
  }
  return 2;
}

std::vector<Row> Suite::measure(const Case& chosen) {
  std::mt19937_64 random(options_.seed);
  std::vector<std::size_t> order(chosen.contenders.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;

  std::vector<std::vector<Sample>> samples(chosen.contenders.size());
  for (unsigned round = 0; round < std::min(options_.rounds, chosen.most_rounds); ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      Sample taken = sample(chosen, chosen.contenders[i]);
      if (!taken.empty()) samples[i].push_back(std::move(taken));
    }
  }

  std::vector<Row> rows;
  for (std::size_t m = 0; m < chosen.metrics.size(); ++m) {
    const Metric& metric = chosen.metrics[m];
    const std::string suffix = metric.name.empty() ? "" : ": " + metric.name;
    Row row{.figure = chosen.figure,
            .name = chosen.name + suffix,
            .unit = metric.unit,
            .ours = ours_,
            .contenders = {},
            .spreads = {},
            .notes = {}};
    for (std::size_t i = 0; i < samples.size(); ++i) {
      std::vector<double> values;
      for (const Sample& taken : samples[i]) values.push_back(taken.at(m));
      if (values.empty()) continue;
      const Contender& contender = chosen.contenders[i];
      row.contenders.push_back(contender.name);
      row.spreads[contender.name] = spread_of(std::move(values));
      if (!contender.note.empty()) row.notes[contender.name] = contender.note;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Sample Suite::sample(const Case& chosen, const Contender& contender) {
  try {
    if (!chosen.fresh_process) return contender.run();
    std::vector<std::string> arguments{"--sample", chosen.figure + ' ' + chosen.name, contender.name, "--ours", ours_};
    if (options_.quick) arguments.emplace_back("--quick");
    return numbers_from_fresh_process(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s %s, %s: %s\n", chosen.figure.c_str(), chosen.name.c_str(), contender.name.c_str(),
                 error.what());
    failed_ = true;
    return {};
  }
}

}  // namespace cox::perf
