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
  if (own == spreads.end()) return std::numeric_limits<double>::quiet_NaN();
  const double mine = own->second.median;
  const double theirs = spreads.at(contender).median;
  const double divisor = larger_is_better ? theirs : mine;
  if (!(divisor > 0)) return std::numeric_limits<double>::quiet_NaN();
  return (larger_is_better ? mine : theirs) / divisor;
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
  const Rounds samples = take_samples(chosen);
  std::vector<Row> rows;
  for (std::size_t metric = 0; metric < chosen.metrics.size(); ++metric) {
    rows.push_back(row_of(chosen, samples, metric));
    if (chosen.minus.empty()) continue;
    Row difference = difference_row(chosen, samples, metric);
    if (!difference.contenders.empty()) rows.push_back(std::move(difference));
  }
  return rows;
}

Suite::Rounds Suite::take_samples(const Case& chosen) {
  std::mt19937_64 random(options_.seed);
  std::vector<std::size_t> order(chosen.contenders.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;

  Rounds samples(chosen.contenders.size());
  for (unsigned round = 0; round < std::min(options_.rounds, chosen.max_rounds); ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) samples[i].push_back(sample(chosen, chosen.contenders[i]));
  }
  return samples;
}

Row Suite::empty_row(const Case& chosen, std::size_t metric) const {
  const Metric& measured = chosen.metrics[metric];
  return {.figure = chosen.figure,
          .name = chosen.name + (measured.name.empty() ? "" : ": " + measured.name),
          .unit = measured.unit,
          .larger_is_better = measured.larger_is_better,
          .ours = ours_,
          .contenders = {},
          .spreads = {},
          .notes = {}};
}

Row Suite::row_of(const Case& chosen, const Rounds& samples, std::size_t metric) const {
  Row row = empty_row(chosen, metric);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::vector<double> values;
    for (const Sample& taken : samples[i])
      if (!taken.empty()) values.push_back(taken.at(metric));
    if (values.empty()) continue;
    const Contender& contender = chosen.contenders[i];
    row.contenders.push_back(contender.name);
    row.spreads[contender.name] = spread_of(std::move(values));
    if (!contender.note.empty()) row.notes[contender.name] = contender.note;
  }
  return row;
}

// The row has no contenders if no round measured both.
Row Suite::difference_row(const Case& chosen, const Rounds& samples, std::size_t metric) const {
  const auto rounds_of = [&](const std::string& name) -> const std::vector<Sample>* {
    for (std::size_t i = 0; i < samples.size(); ++i)
      if (chosen.contenders[i].name == name) return &samples[i];
    return nullptr;
  };
  Row row = empty_row(chosen, metric);
  row.name += ", ours - " + chosen.minus;
  const auto* const mine = rounds_of(ours_);
  const auto* const theirs = rounds_of(chosen.minus);
  if (mine == nullptr || theirs == nullptr) return row;
  std::vector<double> values;
  for (std::size_t round = 0; round < mine->size(); ++round)
    if (!(*mine)[round].empty() && !(*theirs)[round].empty())
      values.push_back((*mine)[round].at(metric) - (*theirs)[round].at(metric));
  if (values.empty()) return row;
  row.contenders.push_back(ours_);
  row.spreads[ours_] = spread_of(std::move(values));
  return row;
}

Sample Suite::sample(const Case& chosen, const Contender& contender) {
  try {
    if (!chosen.fresh_process) return contender.run();
    std::vector<std::string> arguments{"--sample", chosen.figure + ' ' + chosen.name, contender.name, "--ours", ours_};
    if (options_.quick) arguments.emplace_back("--quick");
    arguments.insert(arguments.end(), options_.own_arguments.begin(), options_.own_arguments.end());
    return numbers_from_fresh_process(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s %s, %s: %s\n", chosen.figure.c_str(), chosen.name.c_str(), contender.name.c_str(),
                 error.what());
    failed_ = true;
    return {};
  }
}

}  // namespace cox::perf
