#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <cstddef>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cox::perf;
using cox::test::TemporaryFile;

namespace {

/// Gives one value after the other; throws where it is negative.
Contender playing(std::string name, std::vector<double> values) {
  const auto next = std::make_shared<std::size_t>(0);
  return {std::move(name), [=]() -> Sample {
            const double value = values.at((*next)++);
            if (value < 0) throw std::runtime_error("a planted failure");
            return {value};
          }};
}

nlohmann::json rows_of(Case measured, int exit_code) {
  const TemporaryFile file(std::string{});
  Options options;
  options.rounds = 3;
  options.json = file.path();
  Suite suite(options, "mine");
  suite.add(std::move(measured));
  CHECK(suite.run() == exit_code);
  return nlohmann::json::parse(std::ifstream(file.path()));
}

}  // namespace

TEST_CASE("A ratio says how many times ours is better, also where larger is better") {
  for (const bool larger : {false, true}) {
    const auto rows = rows_of({.figure = "F0",
                               .name = "case",
                               .metrics = {{"", "unit", larger}},
                               .contenders = {playing("mine", {2, 2, 2}), playing("other", {8, 8, 8})}},
                              0);
    REQUIRE(rows.size() == 1);
    CHECK(rows[0]["ratio"]["other"] == (larger ? 0.25 : 4.0));
    CHECK(rows[0].contains("larger_is_better") == larger);
  }
}

TEST_CASE("A difference is taken round by round, leaving out those that failed") {
  const auto rows = rows_of({.figure = "F0",
                             .name = "case",
                             .metrics = {{"time", "us"}},
                             .contenders = {playing("mine", {11, 25, 37}), playing("other", {10, -1, 30})},
                             .minus = "other"},
                            1);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["case"] == "case: time");
  CHECK(rows[1]["case"] == "case: time, ours - other");
  CHECK(rows[1]["ours"]["min"] == 1.0);
  CHECK(rows[1]["ours"]["max"] == 7.0);
  CHECK(rows[1]["peers"].empty());
}
