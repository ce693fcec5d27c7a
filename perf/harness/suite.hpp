#pragma once

#include <coxswain/perf/harness/options.hpp>
#include <coxswain/perf/harness/spread.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace cox::perf {

/// One figure that a sample yields; smaller is better.
struct Metric {
  std::string name;
  std::string unit;
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
  unsigned most_rounds = ~0u;  ///< where one sample takes seconds or does not vary
};

/// What the rounds gave for one metric of one case.
struct Row {
  std::string figure;
  std::string name;
  std::string unit;
  std::string ours;                     ///< empty if no contender is ours
  std::vector<std::string> contenders;  ///< in the order of the case
  std::map<std::string, Spread> spreads;
  std::map<std::string, std::string> notes;

  /// Median of the contender divided by ours: how many times ours is better. NaN if ours is zero or missing.
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
  std::vector<Row> measure(const Case& chosen);
  Sample sample(const Case& chosen, const Contender& contender);

  Options options_;
  std::string ours_;
  std::vector<Case> cases_;
  bool failed_ = false;
};

}  // namespace cox::perf
