#include <coxswain/runtime/trace/trace.hpp>
#include <coxswain/tests/runtime/telemetry/read_trace.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using cox::tools::Command;
using cox::tools::ExitCode;
using Json = nlohmann::json;

namespace {

/// A file that a command writes, gone after the test.
class OutputFile {
 public:
  explicit OutputFile(const std::string& name = "json")
      : path_(std::filesystem::temp_directory_path() / ("cox-" + std::to_string(getpid()) + "." + name)) {}
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() { std::filesystem::remove(path_); }

  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  [[nodiscard]] Json parsed() const {
    std::ifstream file(path_);
    return Json::parse(file);
  }

 private:
  std::filesystem::path path_;
};

const std::vector<std::string> short_run{"stress", "--devices", "host:2", "--operations", "20000",   "--clients",
                                         "4",      "--seed",    "42",     "--payload",    "64:16KiB"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("A run that holds ends with code 0, the table, the conservation, the seed and ok") {
  const Command command = Command::run(short_run);
  CAPTURE(command.out, command.err);
  CHECK(command.code == ExitCode::Ok);
  CHECK(command.err.empty());
  for (const char* part : {"submit", "blocking", "exclusive", "create", "read", "launch", "p99.9 us",
                           "conservation: accepted ", "host:0 host:1", "peak memory", "seed 42", "\nok\n"})
    CHECK(command.out.find(part) != std::string::npos);
}

TEST_CASE("The JSON has the keys of the design, and its conservation adds up under faults") {
  const OutputFile file;
  const Command command = Command::run(
      with(short_run, {"--fault", "throw=0.02,cancel=0.02,expire=0.01", "--json", file.path(), "--quiet"}));
  CAPTURE(command.out, command.err);
  CHECK(command.code == ExitCode::Ok);
  CHECK(command.out == "ok\n");

  const Json json = file.parsed();
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"clients",
                                         "conservation",
                                         "devices",
                                         "explained_errors",
                                         "fault_rates",
                                         "faults",
                                         "host",
                                         "interrupted",
                                         "mix",
                                         "ok",
                                         "operations",
                                         "payload",
                                         "peak_rss_bytes",
                                         "schema",
                                         "seconds",
                                         "seed",
                                         "shortage",
                                         "time",
                                         "version",
                                         "violations"});
  CHECK(json["schema"] == 1);
  CHECK(json["ok"] == true);
  CHECK(json["seed"] == "42");
  CHECK(json["clients"] == 4);
  CHECK(json["payload"] == Json{{"smallest", 64}, {"largest", 16384}});
  CHECK(json["fault_rates"] == Json{{"throw", 0.02}, {"cancel", 0.02}, {"expire", 0.01}});
  CHECK(json["faults"]["throw"].get<std::uint64_t>() > 0);
  CHECK(json["shortage"].is_null());
  CHECK(json["interrupted"] == false);
  CHECK(json["seconds"].get<double>() > 0);
  CHECK(json["devices"] == Json{"host:0", "host:1"});
  CHECK(json["violations"].empty());
  CHECK(json["peak_rss_bytes"].get<std::uint64_t>() > 0);

  std::uint64_t operations = 0;
  for (const auto& [name, figures] : json["operations"].items()) {
    CAPTURE(name);
    for (const char* key : {"count", "rate", "p50_us", "p99_us", "p999_us", "max_us"}) CHECK(figures.contains(key));
    CHECK(figures["p50_us"] <= figures["max_us"]);
    operations += figures["count"].get<std::uint64_t>();
  }
  CHECK(operations == 20'000);

  const Json& c = json["conservation"];
  const auto count = [&c](const char* key) { return c[key].get<std::uint64_t>(); };
  CHECK(count("accepted") == count("completed") + count("failed") + count("cancelled") + count("expired"));
  CHECK(count("failed") > 0);
  CHECK(count("cancelled") > 0);
  CHECK(count("expired") > 0);
}

TEST_CASE("Each operation between devices is done as often as the mix says, and counted") {
  const OutputFile file;
  const std::string name =
      GENERATE("transfer", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all");
  const Command command =
      Command::run({"stress", "--devices", "host:3", "--operations", "600", "--clients", "4", "--seed", "7",
                    "--payload", "64:16KiB", "--mix", name + "=5,launch=1", "--json", file.path()});
  CAPTURE(name, command.out, command.err);
  CHECK(command.code == ExitCode::Ok);
  const Json operations = file.parsed()["operations"];
  const auto count = operations[name]["count"].get<std::uint64_t>();
  CHECK(count > 400);
  CHECK(count + operations["launch"]["count"].get<std::uint64_t>() == 600);
  CHECK(operations[name]["p50_us"].get<double>() > 0);
}

TEST_CASE("Collectives are in the mix unless there is one device alone") {
  const auto operations = [](const std::string& devices) {
    return Command::run({"stress", "--devices", devices, "--operations", "200", "--payload", "64:4KiB"}).out;
  };
  CHECK_THAT(operations("host:2"), Catch::Matchers::ContainsSubstring("all_to_all"));
  CHECK_THAT(operations("host:1"), !Catch::Matchers::ContainsSubstring("all_to_all"));
}

TEST_CASE("A fault of collectives ends in what it explains, and all else holds") {
  struct Injected {
    const char* name;
    const char* rate;
    bool errors;
  };
  const Injected fault =
      GENERATE(Injected{"throw", "0.1", false}, Injected{"stall", "0.1", false}, Injected{"missing", "0.02", true},
               Injected{"mismatch", "0.1", true}, Injected{"shutdown", "0.01", false}, Injected{"leave", "0.05", true},
               Injected{"poison", "0.1", true});
  const Command command = Command::run({"stress", "--devices", "host:3", "--operations", "1500", "--clients", "4",
                                        "--seed", "11", "--payload", "64:16KiB", "--mix",
                                        "submit=5,blocking=2,create=2,read=2,launch=2,tensor=1,graph=1,transfer=4,"
                                        "all_reduce=6,all_gather=1,reduce_scatter=1,broadcast=1,all_to_all=1",
                                        "--fault", std::string(fault.name) + "=" + fault.rate});
  CAPTURE(fault.name, command.out, command.err);
  CHECK(command.code == ExitCode::Ok);
  CHECK_THAT(command.out, Catch::Matchers::ContainsSubstring("faults: " + std::string(fault.name) + " "));
  if (fault.errors) CHECK_THAT(command.out, Catch::Matchers::ContainsSubstring("errors of collectives"));
}

TEST_CASE("The same seed does the same operations") {
  const OutputFile file;
  std::vector<Json> counts;
  for (int run = 0; run < 2; ++run) {
    REQUIRE(Command::run(with(short_run, {"--json", file.path()})).code == ExitCode::Ok);
    const Json json = file.parsed();
    Json& count = counts.emplace_back();
    for (const auto& [name, figures] : json["operations"].items()) count[name] = figures["count"];
  }
  CHECK(counts[0] == counts[1]);
}

TEST_CASE("A seed by chance is shown, and only what is in the mix is done") {
  const Command command = Command::run({"stress", "--devices", "host:1", "--operations", "100", "--mix", "submit=1"});
  CHECK(command.code == ExitCode::Ok);
  CHECK(command.out.find(", seed ") != std::string::npos);
  CHECK(command.out.find("launch") == std::string::npos);
}

TEST_CASE("A run by time ends after it") {
  const OutputFile file;
  REQUIRE(Command::run({"stress", "--devices", "host:1", "--seconds", "0.2", "--clients", "2", "--payload", "64:4KiB",
                        "--json", file.path()})
              .code == ExitCode::Ok);
  CHECK(file.parsed()["seconds"].get<double>() >= 0.2);
}

TEST_CASE("SIGINT and SIGHUP end a run early with its report and its files") {
  const OutputFile file;
  const int signal = GENERATE(SIGINT, SIGHUP);
  struct sigaction before{};
  sigaction(signal, nullptr, &before);
  const Command command = [&] {
    std::jthread user([&](std::stop_token stop) {
      struct sigaction now = before;
      // Until the run has put its handler in place.
      while (!stop.stop_requested() && now.sa_handler == before.sa_handler) {
        std::this_thread::yield();
        sigaction(signal, nullptr, &now);
      }
      if (!stop.stop_requested()) kill(getpid(), signal);
    });
    return Command::run({"stress", "--devices", "host:1", "--seconds", "1000", "--clients", "2", "--payload", "64:4KiB",
                         "--json", file.path()});
  }();
  CHECK(command.code == ExitCode::Ok);
  CHECK(command.out.find("interrupted") != std::string::npos);
  CHECK(command.out.find("\nok\n") != std::string::npos);
  CHECK(file.parsed()["ok"] == true);
}

TEST_CASE("SIGUSR1 writes the flight recorders while the run goes on") {
  const OutputFile file("recorders");
  struct sigaction before{};
  sigaction(SIGUSR1, nullptr, &before);
  const bool to_file = GENERATE(true, false);
  std::vector<std::string> arguments{"stress", "--devices", "host:2",  "--seconds", "1000",         "--clients",
                                     "2",      "--payload", "64:4KiB", "--mix",     "all_reduce=1", "--quiet"};
  if (to_file) arguments.insert(arguments.end(), {"--flight-recorder", file.path()});
  const Command command = [&] {
    std::jthread user([&](std::stop_token stop) {
      struct sigaction now = before;
      while (!stop.stop_requested() && now.sa_handler == before.sa_handler) {
        std::this_thread::yield();
        sigaction(SIGUSR1, nullptr, &now);
      }
      // Until there was something to tell.
      while (!stop.stop_requested() && to_file && file.text().find("all_reduce") == std::string::npos)
        kill(getpid(), SIGUSR1);
      kill(getpid(), SIGUSR1);
      // The monitor looks for requests before it looks for an interruption.
      kill(getpid(), SIGINT);
    });
    return Command::run(arguments);
  }();
  CHECK(command.code == ExitCode::Ok);
  CHECK(command.out == "ok\n");
  const std::string standard = "/cox-stress-" + std::to_string(getpid()) + ".flight-recorder.json";
  const std::string path = to_file ? file.path() : std::filesystem::temp_directory_path().string() + standard;
  std::ifstream written(path);
  const Json recorders = Json::parse(written);
  CHECK(recorders.is_array());
  if (!to_file) {
    CHECK_THAT(command.err, Catch::Matchers::StartsWith("cox stress: flight recorders: " + path + "\n"));
    std::filesystem::remove(path);
    return;
  }
  REQUIRE_FALSE(recorders.empty());
  CHECK(recorders[0].contains("entries"));
}

TEST_CASE("A run leaves a trace that can be drawn and the metrics of its end") {
  const OutputFile trace("trace");
  const OutputFile metrics("metrics");
  const Command command = Command::run(with(short_run, {"--trace", trace.path(), "--metrics", metrics.path()}));
  CAPTURE(command.out, command.err);
  CHECK(command.code == ExitCode::Ok);
  CHECK_FALSE(cox::trace::enabled());

  const cox::test::ReadTrace read(trace.text());
  CHECK(read.fault().empty());
  CHECK(read.of("X").size() > 20'000);
  bool both[2] = {};
  for (const auto& slice : read.of("X")) {
    for (int device = 0; device < 2; ++device)
      both[device] |= !both[device] && read.row_of(slice) == "device host:" + std::to_string(device) + "/device thread";
    if (both[0] && both[1]) break;
  }
  CHECK(both[0]);
  CHECK(both[1]);

  for (const char* device : {"host:0", "host:1"}) {
    const std::string labels = "{device=\"" + std::string(device) + "\",stage=\"Downstream\"}";
    CHECK_THAT(metrics.text(), Catch::Matchers::ContainsSubstring("cox_tasks_accepted_total" + labels));
  }
}

TEST_CASE("A trace or metrics file that cannot be written is a bad argument") {
  for (const char* option : {"--trace", "--metrics"}) {
    const Command command = Command::run(with(short_run, {option, "/nowhere/file"}));
    CHECK(command.code == ExitCode::BadArguments);
    CHECK_THAT(command.err,
               Catch::Matchers::ContainsSubstring(option) && Catch::Matchers::ContainsSubstring("'/nowhere/file'"));
  }
}
