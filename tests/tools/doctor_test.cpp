#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tools/cox/doctor/check.hpp>
#include <coxswain/tools/cox/doctor/gather.hpp>
#include <coxswain/tools/cox/doctor/nccl_versions.hpp>
#include <coxswain/tools/cox/doctor/report.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>
#include <string>

using Catch::Matchers::ContainsSubstring;
using cox::CudaDeviceFacts;
using cox::tools::check;
using cox::tools::Command;
using cox::tools::ExitCode;
using cox::tools::Facts;
using cox::tools::Finding;
using cox::tools::Findings;
using Severity = cox::tools::Finding::Severity;

namespace {

// A machine with nothing to find fault with.
Facts good_machine() {
  Facts facts;
  facts.driver = {.found = true, .version = 13000, .error = {}};
  facts.nvrtc = {.found = true, .version = 13000, .error = {}};
  facts.nccl = {.found = true, .version = 22809, .file = "libnccl.so.2", .error = {}};
  for (const char* bus : {"0000:3b:00.0", "0000:5e:00.0"}) {
    CudaDeviceFacts gpu;
    gpu.name = "NVIDIA H200";
    gpu.memory = std::size_t{140} << 30U;
    gpu.bus_id = bus;
    gpu.compute_major = 9;
    gpu.numa_node = 0;
    gpu.ecc = true;
    facts.gpus.push_back(gpu);
    facts.peers.push_back({{.access = true, .rank = 0}, {.access = true, .rank = 0}});
  }
  facts.limits.open_files = 65536;
  facts.limits.shared_memory = std::uint64_t{8} << 30U;
  facts.limits.cores = 16;
  facts.limits.usable_cores = 16;
  facts.limits.huge_pages = "madvise";
  return facts;
}

Finding finding(const Facts& facts, const std::string& subject) {
  const Findings findings = check(facts);
  const auto found = std::ranges::find(findings, subject, &Finding::subject);
  REQUIRE(found != findings.end());
  return *found;
}

// The finding on `subject` after `change`, which must come with a fix, and be the only one of its kind.
Finding complaint(const std::string& subject, Severity severity, const auto& change) {
  CAPTURE(subject);
  Facts facts = good_machine();
  change(facts);
  const Finding found = finding(facts, subject);
  CHECK(found.severity == severity);
  CHECK_FALSE(found.fix.empty());
  CHECK(std::ranges::count_if(check(facts), [](const Finding& f) { return f.severity != Severity::Ok; }) == 1);
  return found;
}

Finding with_variable(const std::string& name, const std::string& value, Severity severity) {
  return complaint(name, severity, [&](Facts& facts) { facts.environment[name] = value; });
}

}  // namespace

TEST_CASE("Of a good machine there is nothing but good to say") {
  const Findings findings = check(good_machine());
  CHECK(cox::tools::all_passed(findings));
  for (const Finding& f : findings) {
    CAPTURE(f.subject, f.text);
    CHECK(f.severity == Severity::Ok);
    CHECK(f.fix.empty());
    CHECK_FALSE(f.text.empty());
  }
  CHECK_THAT(finding(good_machine(), "cuda:1").text, ContainsSubstring("NVIDIA H200") &&
                                                         ContainsSubstring("0000:5e:00.0") &&
                                                         ContainsSubstring("9.0") && ContainsSubstring("NUMA node 0"));
}

TEST_CASE("Without a driver that is all that is said of GPUs and their libraries") {
  Facts facts = good_machine();
  facts.driver = {.found = false, .version = 0, .error = "no CUDA driver was found"};
  facts.gpus.clear();
  facts.peers.clear();
  facts.nvrtc.found = false;
  facts.nccl.found = false;
  CHECK(finding(facts, "driver").severity == Severity::Wrong);
  CHECK(finding(facts, "driver").text == "no CUDA driver was found");
  const Findings findings = check(facts);
  CHECK(std::ranges::count(findings, Severity::Ok, &Finding::severity) == std::ssize(findings) - 1);
  for (const char* subject : {"NVRTC", "NCCL", "peers", "cuda:0"})
    CHECK(std::ranges::find(findings, subject, &Finding::subject) == findings.end());
}

TEST_CASE("Of a build without the CUDA server that is said, not that a driver is missing") {
  Facts facts;
  facts.cuda_server = false;
  facts.limits = good_machine().limits;
  const Findings findings = check(facts);
  REQUIRE_FALSE(findings.empty());
  CHECK(findings.front().severity == Severity::Wrong);
  CHECK(findings.front().subject == "CUDA server");
  CHECK(findings.front().fix == "install the headers of CUDA 12.4 or newer, and build again");
  for (const char* subject : {"driver", "NVRTC", "NCCL"})
    CHECK(std::ranges::find(findings, subject, &Finding::subject) == findings.end());
}

TEST_CASE("A library that a setting names, and that cannot be used, is wrong also without a driver and with one GPU") {
  Facts facts = good_machine();
  facts.driver.found = false;
  facts.gpus.clear();
  facts.peers.clear();
  facts.nvrtc = {false, 0, "/opt/libnvrtc.so: no such file"};
  facts.nccl.found = false;
  facts.nccl.error = "/opt/libnccl.so: no such file";
  facts.names_nvrtc = facts.names_nccl = true;
  for (const char* subject : {"NVRTC", "NCCL"}) {
    CHECK(finding(facts, subject).severity == Severity::Wrong);
    CHECK_THAT(finding(facts, subject).text, ContainsSubstring("no such file"));
  }
}

TEST_CASE("Missing and mismatched libraries are wrong") {
  complaint("NVRTC", Severity::Wrong, [](Facts& facts) { facts.nvrtc = {false, 0, "there is no NVRTC here"}; });
  complaint("NVRTC", Severity::Wrong, [](Facts& facts) { facts.driver.version = 12080; });
  complaint("NCCL", Severity::Wrong, [](Facts& facts) { facts.nccl.found = false; });
  Facts one = good_machine();
  one.gpus.pop_back();
  one.nccl.found = false;
  CHECK(finding(one, "NCCL").severity == Severity::Ok);
}

TEST_CASE("T16 NCCL versions that are known to be bad are wrong, with the reason") {
  const auto version = [](int v) { return [v](Facts& facts) { facts.nccl.version = v; }; };
  CHECK_THAT(complaint("NCCL", Severity::Wrong, version(21801)).text,
             ContainsSubstring("2.18.1") && ContainsSubstring("LL128"));
  complaint("NCCL", Severity::Wrong, version(21210));
  CHECK_FALSE(cox::tools::known_issue(22902, true).empty());
  for (const int good : {21403, 21803, 22809, 22902}) CHECK(cox::tools::known_issue(good, false).empty());
  CHECK(cox::tools::known_issue(22903, true).empty());
}

TEST_CASE("A GPU that does not let everybody in is told with the command that changes it") {
  const auto use = [](CudaDeviceFacts::Use u) { return [u](Facts& facts) { facts.gpus[1].use = u; }; };
  CHECK(complaint("cuda:1", Severity::Warning, use(CudaDeviceFacts::Use::OneProcess)).fix ==
        "nvidia-smi -i 0000:5e:00.0 -c DEFAULT");
  complaint("cuda:1", Severity::Wrong, use(CudaDeviceFacts::Use::Nobody));
}

TEST_CASE("GPUs that do not reach each other are named") {
  const Finding found = complaint("peers", Severity::Warning, [](Facts& facts) { facts.peers[1][0].access = false; });
  CHECK_THAT(found.text, Catch::Matchers::EndsWith(": cuda:1 to cuda:0"));
}

TEST_CASE("Limits that are too low are told") {
  complaint("open files", Severity::Warning, [](Facts& facts) { facts.limits.open_files = 256; });
  complaint("address space", Severity::Wrong, [](Facts& facts) { facts.limits.address_space = 1U << 30U; });
  complaint("/dev/shm", Severity::Warning, [](Facts& facts) { facts.limits.shared_memory = 64U << 20U; });
  complaint("/dev/shm", Severity::Warning, [](Facts& facts) { facts.limits.shared_memory.reset(); });
  complaint("cores", Severity::Warning, [](Facts& facts) { facts.limits.usable_cores = 3; });
  CHECK_THAT(complaint("cores", Severity::Warning, [](Facts& facts) { facts.limits.core_quota = 2.5; }).text,
             ContainsSubstring("CPU quota of 2.5"));
  complaint("locked memory", Severity::Warning, [](Facts& facts) {
    facts.limits.infiniband = true;
    facts.limits.locked_memory = 8U << 20U;
  });
  Facts no_network = good_machine();
  no_network.limits.locked_memory = 65536;
  CHECK(finding(no_network, "locked memory").severity == Severity::Ok);
}

TEST_CASE("Variables that hurt are told, others only shown") {
  with_variable("CUDA_LAUNCH_BLOCKING", "1", Severity::Wrong);
  with_variable("CUDA_VISIBLE_DEVICES", "-1", Severity::Wrong);
  with_variable("CUDA_VISIBLE_DEVICES", "", Severity::Wrong);
  with_variable("CUDA_DEVICE_MAX_CONNECTIONS", "1", Severity::Warning);
  with_variable("NCCL_DEBUG", "TRACE", Severity::Warning);
  with_variable("NCCL_P2P_DISABLE", "1", Severity::Warning);
  Facts facts = good_machine();
  facts.environment = {{"CUDA_LAUNCH_BLOCKING", "0"},
                       {"CUDA_VISIBLE_DEVICES", "0,1"},
                       {"CUDA_MODULE_LOADING", "LAZY"},
                       {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                       {"NCCL_DEBUG", "WARN"}};
  for (const auto& [name, value] : facts.environment) {
    CHECK(finding(facts, name).severity == Severity::Ok);
    CHECK(finding(facts, name).text == "'" + value + "'");
  }
}

TEST_CASE("The figures of the system are read as it writes them") {
  CHECK(cox::tools::chosen_word("always [madvise] never") == "madvise");
  CHECK(cox::tools::chosen_word("always madvise").empty());
  CHECK(cox::tools::chosen_word("] [").empty());
  CHECK(cox::tools::core_quota("250000 100000") == 2.5);
  for (const char* none : {"max 100000", "", "5", "5 ", "5 0", "x 1"}) CHECK_FALSE(cox::tools::core_quota(none));
}

TEST_CASE("The table has a line for each finding, its fix below, the peers and the upshot") {
  Facts facts = good_machine();
  facts.peers[0][1].access = false;
  facts.peers[1][0].rank = 1;
  std::ostringstream out;
  cox::tools::write_doctor_table(facts, check(facts), out);
  CHECK_THAT(out.str(),
             ContainsSubstring("ok       driver         CUDA 13.0\n") && ContainsSubstring("\nwarning  peers") &&
                 ContainsSubstring(" fix: run nvidia-smi topo") && ContainsSubstring("cuda:0   -        no       \n") &&
                 ContainsSubstring("cuda:1   yes/1    -        \n") && ContainsSubstring("\n0 wrong, 1 warnings\n"));
}

TEST_CASE("The findings as JSON say the same") {
  Facts facts = good_machine();
  facts.nccl.found = false;
  const auto json = nlohmann::json::parse(cox::tools::doctor_json(facts, check(facts)));
  CHECK(json["ok"] == false);
  CHECK(json["findings"].size() == check(facts).size());
  CHECK(json["findings"][2]["severity"] == "wrong");
  CHECK(json["findings"][2]["subject"] == "NCCL");
  CHECK(json["gpus"][1]["bus_id"] == "0000:5e:00.0");
  CHECK(json["peers"][0][0].is_null());
  CHECK(json["peers"][0][1]["access"] == true);
}

TEST_CASE("cox doctor looks at any machine, and ends with 0 exactly if nothing is wrong") {
  const Command table = Command::run({"doctor"});
  const Command json = Command::run({"doctor", "--json", "-"});
  CHECK(table.err.empty());
  CHECK(table.code == json.code);
  const bool ok = nlohmann::json::parse(json.out)["ok"];
  CHECK(json.code == (ok ? ExitCode::Ok : ExitCode::Violation));
  const char* const gpus = cox::tools::gather_facts().cuda_server ? "driver" : "CUDA server";
  for (const char* subject : {gpus, "open files", "cores", "/dev/shm"})
    CHECK_THAT(table.out, ContainsSubstring(subject));
}
