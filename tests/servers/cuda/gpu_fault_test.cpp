#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <fstream>
#include <latch>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::CudaError;
using cox::GpuFault;
using cox::LaunchError;
using cox::detail::FaultListener;
using cox::detail::report_gpu_fault;
using cox::test::TemporaryFile;
using cox::test::Variable;

namespace {

// The process has had no fault before it, and none after it.
struct FreshFault {
  FreshFault() { cox::detail::forget_gpu_fault(); }
  FreshFault(const FreshFault&) = delete;
  FreshFault& operator=(const FreshFault&) = delete;
  ~FreshFault() { cox::detail::forget_gpu_fault(); }
};

const GpuFault::Suspect scale{"launch of scale", "cuda:0, stream 3", "train.cpp:31"};

auto suspect(const GpuFault::Suspect& one) {
  return [one](std::vector<GpuFault::Suspect>& suspects) { suspects.push_back(one); };
}

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("Without a fault there is none to be had, and the exit code is the program's") {
  const FreshFault fresh;
  CHECK(cox::gpu_fault() == nullptr);
  CHECK_FALSE(cox::detail::gpu_faulted());
  CHECK(cox::detail::gpu_fault_error(std::source_location::current()) == nullptr);
  CHECK(cox::exit_code(0) == 0);
  CHECK(cox::exit_code(7) == 7);
}

TEST_CASE("The first fault is the process's, with the suspects of everybody who listens") {
  const FreshFault fresh;
  const FaultListener one(suspect(scale), [] {});
  const FaultListener other(suspect({"copy", "cuda:1, stream 0", "train.cpp:40"}), [] {});
  report_gpu_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "event_query(event)");
  report_gpu_fault(CUDA_ERROR_LAUNCH_FAILED, "stream_synchronize(stream)");
  const auto fault = cox::gpu_fault();
  REQUIRE(fault != nullptr);
  CHECK(fault->code == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(fault->call == "event_query(event)");
  REQUIRE(fault->suspects.size() == 2);
  CHECK(fault->suspects[0].site == "train.cpp:31");
  CHECK(fault->suspects[1].site == "train.cpp:40");
  CHECK(cox::exit_code(0) == cox::gpu_fault_exit_code);
  CHECK(cox::exit_code(1) == cox::gpu_fault_exit_code);
}

TEST_CASE("Suspects are asked for before anybody is told, and a told listener finds the fault") {
  const FreshFault fresh;
  std::vector<std::string> steps;
  const auto ask = [&](std::vector<GpuFault::Suspect>&) {
    steps.push_back(cox::gpu_fault() == nullptr ? "ask" : "ask, known");
  };
  const auto told = [&] { steps.push_back(cox::gpu_fault() != nullptr ? "told" : "told, not known"); };
  const FaultListener one(ask, told);
  const FaultListener other(ask, told);
  {
    const FaultListener gone([&](auto&) { steps.push_back("gone"); }, [&] { steps.push_back("gone"); });
  }
  report_gpu_fault(CUDA_ERROR_ASSERT, "call");
  CHECK(steps == std::vector<std::string>{"ask", "ask", "told", "told"});
}

TEST_CASE("A thread that finds the fault second does not wait for the first to end, which may want its lock") {
  const FreshFault fresh;
  std::mutex device;
  std::latch asked(1);
  const FaultListener listener(
      [&](auto& suspects) {
        asked.count_down();
        const std::scoped_lock lock(device);
        suspects.push_back(scale);
      },
      [] {});
  std::unique_lock lock(device);
  std::thread first([] { report_gpu_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "first"); });
  asked.wait();
  report_gpu_fault(CUDA_ERROR_ASSERT, "second");  // returns although the first still waits for this thread's lock
  REQUIRE_THROWS_WITH(cox::detail::throw_gpu_fault(std::source_location::current()), ContainsSubstring("first"));
  lock.unlock();
  first.join();
  REQUIRE(cox::gpu_fault() != nullptr);
  CHECK(cox::gpu_fault()->suspects.size() == 1);
}

TEST_CASE("L12 The error of a fault says cause and suspects, and lists the failed kernel") {
  const FreshFault fresh;
  const FaultListener listener(suspect(scale), [] {});
  report_gpu_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "event_query(event)");
  const auto site = std::source_location::current();
  try {
    cox::detail::throw_gpu_fault(site);
  } catch (const CudaError& error) {
    CHECK(error.kind() == CudaError::Kind::Unhealthy);
    CHECK(error.code() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(error.site().line() == site.line());
    CHECK_THAT(error.what(), ContainsSubstring("(700) from event_query(event)") &&
                                 ContainsSubstring("launch of scale on cuda:0, stream 3 at "
                                                   "train.cpp:31"));
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    REQUIRE(error.errors().size() == 1);
    CHECK(error.cause() == error.errors().front());
    try {
      std::rethrow_exception(error.cause());
    } catch (const LaunchError& culprit) {
      CHECK(culprit.kind() == LaunchError::Kind::KernelFailed);
      CHECK(std::string(culprit.what()) == error.what());
    }
  }
}

TEST_CASE("A fault's line names four suspects and counts the others") {
  GpuFault fault{.code = 700, .name = "NAME", .call = "call", .suspects = {}, .when = {}};
  CHECK_THAT(fault.to_string(), Catch::Matchers::EndsWith("suspects: none, no operation was known to be in flight"));
  fault.suspects.assign(6, scale);
  CHECK_THAT(fault.to_string(), Catch::Matchers::EndsWith("at train.cpp:31; and 2 more"));
}

TEST_CASE("The report is in the file that COX_FAULT_REPORT names before anybody is told") {
  const FreshFault fresh;
  const TemporaryFile file("");
  const Variable variable("COX_FAULT_REPORT", file.path());
  std::string found;
  const FaultListener listener(suspect({"launch of \"scale\"", "place", "site"}),
                               [&] { found = content(file.path()); });
  report_gpu_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "event_query(event)");
  for (const char* part :
       {"\"exit_code\": 86", "\"code\": 700", "\"call\": \"event_query(event)\"",
        R"("operation": "launch of \"scale\"")", "\"site\": \"site\"", "\"time\": \"20", "\"pid\": "})
    CHECK_THAT(found, ContainsSubstring(part));
}

TEST_CASE("A report that cannot be written is logged, and the fault is told all the same") {
  const FreshFault fresh;
  const Variable variable("COX_FAULT_REPORT", "/no/such/folder/fault.json");
  std::mutex mutex;
  std::string lines;
  cox::LogOptions options;
  options.to_stderr = false;
  options.callback = [&](cox::LogSubsystem subsystem, cox::LogLevel level, std::string_view text) {
    const std::scoped_lock lock(mutex);
    if (subsystem == cox::LogSubsystem::Cuda && level == cox::LogLevel::Error) lines += std::string(text) + "\n";
  };
  cox::log::start(options);
  bool told = false;
  const FaultListener listener([](auto&) {}, [&] { told = true; });
  report_gpu_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "event_query(event)");
  cox::log::stop();
  CHECK(told);
  CHECK_THAT(lines, ContainsSubstring("all CUDA devices of the process are lost"));
  CHECK_THAT(lines, ContainsSubstring("COX_FAULT_REPORT: cannot write '/no/such/folder/fault.json': No such file"));
}
