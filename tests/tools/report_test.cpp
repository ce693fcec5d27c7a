#include <coxswain/tools/cox/stress/report.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <nlohmann/json.hpp>

#include <string>

using namespace cox::stress;

namespace {

Report broken_report() {
  Report report;
  report.seed = 7;
  report.devices = {{0, 0}, {0, 1}};
  report.done[static_cast<std::size_t>(Operation::Submit)] = true;
  report.violations.push_back({.law = Law::Order,
                               .expected = "operation 3 of the same client has run",
                               .got = "only operation 2 has",
                               .client = 5,
                               .device = cox::DeviceId{0, 1},
                               .stream = 17,
                               .sequence = Sequence::of(4, 0)});
  return report;
}

}  // namespace

TEST_CASE("The verdict explains the first violation: law, place, expectation, finding, seed") {
  const std::string text = verdict(broken_report());
  CHECK(text ==
        "violation of L1 order\n"
        "  where:    client 5, device host:1, stream 17, operation 4\n"
        "  expected: operation 3 of the same client has run\n"
        "  got:      only operation 2 has\n"
        "  again:    the same arguments with --seed 7\n");
}

TEST_CASE("The verdict counts the violations after the first") {
  Report report = broken_report();
  report.violations.push_back({.law = Law::Data, .expected = "a", .got = "b"});
  CHECK(verdict(report).find("and 1 more violation after it\n") != std::string::npos);
}

TEST_CASE("The verdict on what the process could not get speaks of no law") {
  Report report = broken_report();
  report.violations.push_back({.law = Law::Errors,
                               .expected = "the stream is healthy",
                               .got = "out of host memory: the process could not get 4 B"});
  CHECK(verdict(report) ==
        "stopped: this process cannot get a resource that the run needs; the laws were not judged\n"
        "  got:      out of host memory: the process could not get 4 B\n");
  CHECK_FALSE(report.ok());
}

TEST_CASE("The verdict is at most a page, and names the file of the flight recorders") {
  Report report = broken_report();
  report.violations.front().expected = report.violations.front().got = std::string(100'000, 'x');
  const std::string text = verdict(report, "/tmp/recorders.json");
  CHECK(text.size() < 24 * 80);
  CHECK(text.find("  recorder: /tmp/recorders.json\n") != std::string::npos);
}

TEST_CASE("The JSON of a broken run says so and lists each violation") {
  const auto parsed = nlohmann::json::parse(json(broken_report()));
  CHECK(parsed["ok"] == false);
  CHECK(parsed["seed"] == "7");
  REQUIRE(parsed["violations"].size() == 1);
  const auto& violation = parsed["violations"][0];
  CHECK(violation["law"] == "L1 order");
  CHECK(violation["client"] == 5);
  CHECK(violation["device"] == "host:1");
  CHECK(violation["stream"] == 17);
  CHECK(violation["operation"] == 4);
  CHECK(violation["expected"] == "operation 3 of the same client has run");
  CHECK(violation["got"] == "only operation 2 has");
}

TEST_CASE("The table has a row for each operation of the mix and none for others") {
  Report report = broken_report();
  report.seconds = 2;
  report.latencies[Operation::Submit].record(1'500, 10);
  const std::string text = table(report);
  CHECK(text.find("submit ") != std::string::npos);
  CHECK(text.find("blocking ") == std::string::npos);
  CHECK(text.find("1.50") != std::string::npos);
  CHECK(text.find(" 5 ") != std::string::npos);  // a second
}
