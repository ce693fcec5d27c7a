#pragma once

#include <coxswain/perf/harness/options.hpp>
#include <coxswain/perf/harness/spread.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace cox::perf {

/// One value that a sample measures.
struct Metric {
  std::string name;
  std::string unit;
  bool larger_is_better = false;
};

/// One sample: a value for each metric of its case.
using Sample = std::vector<double>;

/// One implementation of the operation that a case measures.
struct Contender {
  std::string name;
  std::function<Sample()> run;
  std::string note = "";  ///< remark for the reader of the table, such as "no bound"
};

/// One comparison and its contenders.
struct Case {
  std::string figure;
  std::string name;
  std::vector<Metric> metrics;
  std::vector<Contender> contenders;
  bool fresh_process = false;  ///< run each sample in its own process (for memory)
  unsigned max_rounds = ~0u;   ///< limit for cases where one sample takes seconds or does not vary
  /// The name of a contender, or empty. Each metric then has one more row: ours minus this contender, computed per
  /// round.
  std::string minus = "";
};

/// The results of all rounds for one metric of one case.
struct Row {
  std::string figure;
  std::string name;
  std::string unit;
  bool larger_is_better = false;
  std::string ours;                     ///< empty if no contender is ours
  std::vector<std::string> contenders;  ///< in the order of the case
  std::map<std::string, Spread> spreads;
  std::map<std::string, std::string> notes;

  /// How many times better ours is, by the medians: the contender's divided by ours or, where larger is better, ours
  /// divided by the contender's. NaN if the divisor is zero, or if ours was not measured.
  double ratio(const std::string& contender) const;
};

/// Runs the cases of a program. Each round runs all contenders of a case once, in a random order.
class Suite {
 public:
  /// `ours` is the name of the contender that the others are divided by, unless the options name another.
  Suite(Options options, std::string ours);

  void add(Case added);

  /// Runs the cases that the options select, prints tables, and writes JSON. Blocks. Returns the exit code: 0, 1 if a
  /// contender threw, 2 if no case matched.
  int run();

 private:
  int list() const;
  int print_sample(const std::string& name, const std::string& contender) const;
  using Rounds = std::vector<std::vector<Sample>>;  // [contender][round]; an empty sample where it failed
  std::vector<Row> measure(const Case& chosen);
  Rounds take_samples(const Case& chosen);
  Row row_of(const Case& chosen, const Rounds& samples, std::size_t metric) const;
  Row difference_row(const Case& chosen, const Rounds& samples, std::size_t metric) const;
  Row empty_row(const Case& chosen, std::size_t metric) const;
  Sample sample(const Case& chosen, const Contender& contender);

  Options options_;
  std::string ours_;
  std::vector<Case> cases_;
  bool failed_ = false;
};

}  // namespace cox::perf
