#pragma once

#include <coxswain/perf/harness/options.hpp>
#include <coxswain/perf/harness/spread.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace cox::perf {

/// One figure that a sample yields.
struct Metric {
  std::string name;
  std::string unit;
  bool larger_is_better = false;
};

/// One sample: a value per metric of its case.
using Sample = std::vector<double>;

/// One way to do what a case asks for.
struct Contender {
  std::string name;
  std::function<Sample()> run;
  std::string note = "";  ///< what a reader must know, such as "no bound"
};

/// One question and everyone who answers it.
struct Case {
  std::string figure;
  std::string name;
  std::vector<Metric> metrics;
  std::vector<Contender> contenders;
  bool fresh_process = false;  ///< each sample runs in a process of its own (memory)
  unsigned max_rounds = ~0u;   ///< where one sample takes seconds or does not vary
  /// A contender: for every metric there is one row more, ours minus this one, taken round by round.
  std::string minus = "";
};

/// What the rounds gave for one metric of one case.
struct Row {
  std::string figure;
  std::string name;
  std::string unit;
  bool larger_is_better = false;
  std::string ours;                     ///< empty if no contender is ours
  std::vector<std::string> contenders;  ///< in the order of the case
  std::map<std::string, Spread> spreads;
  std::map<std::string, std::string> notes;

  /// How many times ours is better, by the medians: those of the contender divided by ours, or, where larger is better,
  /// ours by those of the contender. NaN if the divisor is zero or missing.
  double ratio(const std::string& contender) const;
};

/// Runs the cases of a program: every round runs all contenders of a case once, in an order drawn for that round.
class Suite {
 public:
  /// `ours` names the contender that others are divided by, unless the options name another.
  Suite(Options options, std::string ours);

  void add(Case added);

  /// Runs what the options choose, prints tables, writes JSON. Returns the exit code: 0, 1 if a contender threw, 2 if
  /// nothing matched.
  int run();

 private:
  int list() const;
  int print_sample(const std::string& name, const std::string& contender) const;
  using Rounds = std::vector<std::vector<Sample>>;  // by contender, then round; empty where it failed
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
