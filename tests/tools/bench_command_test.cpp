#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tools/cox/bench/measurement.hpp>

#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

using cox::bench::BenchCase;
using cox::bench::measure;
using cox::bench::Measurement;
using cox::tools::Command;
using cox::tools::ExitCode;

using namespace std::chrono_literals;

TEST_CASE("cox bench measures every case on every device, and what they do together") {
  const cox::test::TemporaryFile file(std::string{});
  const Command command = Command::run({"bench", "--devices", "host:2", "--seconds", "0.01", "--json", file.path()});
  REQUIRE(command.code == ExitCode::Ok);
  std::ifstream stream(file.path());
  const auto json = nlohmann::json::parse(stream);
  CHECK(json["devices"] == nlohmann::json({"host:0", "host:1"}));
  CHECK(json["interrupted"] == false);
  CHECK(json["seconds"].get<double>() > 0);
  std::multiset<std::string> names;
  for (const auto& row : json["rows"]) {
    names.insert(row["where"].get<std::string>() + " " + row["what"].get<std::string>());
    CHECK(command.out.find(row["what"].get<std::string>()) != std::string::npos);
    CHECK(row["samples"].get<std::size_t>() >= 5);
    const double p50 = row["p50_us"];
    CHECK(p50 > 0);
    CHECK(p50 <= row["p99_us"].get<double>());
    CHECK(row["p99_us"] <= row["max_us"]);
  }
  for (const char* name : {"host:0 submit", "host:1 submit", "host:1 launch and sync", "host:0 read of 4 B",
                           "host:0 > host:1 transfer of 64 MiB", "host:0 host:1 all_reduce of 8 B"})
    CHECK(names.count(name) == 1);
}

TEST_CASE("cox bench takes the cases that were asked for, and refuses what is none") {
  const Command some = Command::run({"bench", "--devices", "host:1", "--seconds", "0.01", "--filter", "launch"});
  CHECK(some.code == ExitCode::Ok);
  CHECK(some.out.find("launch and sync") != std::string::npos);
  CHECK(some.out.find("submit") == std::string::npos);
  const Command none = Command::run({"bench", "--devices", "host:1", "--filter", "teleport"});
  CHECK(none.code == ExitCode::BadArguments);
  CHECK(none.err == "cox bench: --filter: no case has 'teleport' in its name\n");
  CHECK(Command::run({"bench", "--seconds", "0"}).code == ExitCode::BadArguments);
  CHECK(Command::run({"bench", "--devices", "abacus"}).code == ExitCode::BadArguments);
}

TEST_CASE("A measurement is made of the samples' quantiles, without those that warm up") {
  double next = 0;
  const BenchCase counting{"here", "counting", [&next] { return ++next; }, 3000, 1.5};
  const std::atomic<bool> interrupted{false};
  const Measurement measured = measure(counting, 0ns, interrupted);
  CHECK(measured.samples == 5);  // 3 to 7
  CHECK(measured.p50 == 5);
  CHECK(measured.p99 == 7);
  CHECK(measured.max == 7);
  CHECK(measured.algorithm_rate == Approx(0.6));
  CHECK(measured.bus_rate == Approx(0.9));
}

TEST_CASE("A measurement ends when it is interrupted, and with what its case throws") {
  std::atomic<bool> interrupted{false};
  int calls = 0;
  const BenchCase interrupting{"here", "interrupting", [&] {
                                 interrupted = ++calls == 4;
                                 return 1.0;
                               }};
  CHECK(measure(interrupting, 1h, interrupted).samples == 2);
  CHECK(measure(interrupting, 1h, std::atomic<bool>{true}).samples == 0);
  const BenchCase throwing{"here", "throwing", []() -> double { throw std::runtime_error("wanted"); }};
  CHECK_THROWS_WITH(measure(throwing, 1h, interrupted), "wanted");
}

TEST_CASE("The table of cox bench keeps its columns, however long a sample takes and however many devices there are") {
  cox::bench::BenchReport report;
  report.rows.push_back({.where = "host:0", .what = "submit", .samples = 40, .p50 = 0.036, .p99 = 0.2, .max = 9.999});
  report.rows.push_back({.where = "host:0 host:1 host:2 host:3",
                         .what = "all_reduce of 8 B",
                         .samples = 100'000,
                         .p50 = 123'456.789,
                         .p99 = 307'464.447,
                         .max = 999'999.4,
                         .algorithm_rate = 1.03e-6,
                         .bus_rate = 1234.5});
  const std::string table = cox::bench::table(report);
  std::set<std::size_t> widths;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) widths.insert(line.size());
  INFO(table);
  CHECK(widths.size() == 1);
  CHECK(table.find("all 4") != std::string::npos);
}
