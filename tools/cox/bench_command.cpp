#include <coxswain/tools/cox/bench_command.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#ifdef COX_HAS_CUDA
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#endif
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/bench/device_cases.hpp>
#include <coxswain/tools/cox/bench/group_cases.hpp>
#include <coxswain/tools/cox/bench/measurement.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>
#include <coxswain/tools/cox/interruption.hpp>
#include <coxswain/tools/cox/output_file.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <utility>
#include <vector>

namespace cox::tools {
namespace {

using bench::BenchCase;

constexpr std::chrono::seconds standard_time{10};

// Shuts all devices down at the end of the scope, also after an exception.
struct DevicesScope {
  DevicesScope() = default;
  DevicesScope(const DevicesScope&) = delete;
  DevicesScope& operator=(const DevicesScope&) = delete;
  ~DevicesScope() { shutdown_all(); }
};

template <class Client>
std::vector<BenchCase> cases_on(const std::vector<DeviceId>& devices) {
  std::vector<Client> clients;
  try {
    for (const DeviceId device : devices) clients.push_back(Client::load(device));
  } catch (const std::exception& error) {
    throw DeviceUnavailable(std::string("a device cannot be opened: ") + error.what());
  }
  std::vector<BenchCase> cases;
  const auto add = [&cases](std::vector<BenchCase> more) {
    cases.insert(cases.end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
  };
  for (const Client& client : clients) add(bench::device_cases(client));
  if (clients.size() > 1) add(bench::group_cases(clients));
  return cases;
}

std::vector<BenchCase> cases_on_devices(const std::vector<DeviceId>& devices) {
#ifdef COX_HAS_CUDA
  if (devices.front().type == cuda_device_type) return cases_on<CudaClient>(devices);
#endif
  return cases_on<HostClient>(devices);
}

}  // namespace

BenchCommand::BenchCommand(CLI::App& app)
    : command_(*app.add_subcommand("bench", "Measure the cost of client calls on devices")) {
  command_.add_option("--devices", devices_, "host, host:COUNT, cuda or cuda:INDEX,INDEX")->capture_default_str();
  command_.add_option("--seconds", seconds_, "Seconds for all cases together (default: 10)");
  command_.add_option("--filter", filter_, "Measure only cases whose name contains this text");
  command_.add_option("--json", json_, "Write the result to this file; -: to standard output, instead of the table");
}

bool BenchCommand::chosen() const { return command_.parsed(); }

ExitCode BenchCommand::run(std::ostream& out, std::ostream& err) const {
  const std::chrono::duration<double> time = seconds_.empty() ? standard_time : parse_seconds("--seconds", seconds_);
  const bool to_file = !json_.empty() && json_ != standard_output;
  if (to_file) require_writable("--json", json_);
  const std::vector<DeviceId> devices = parse_devices("--devices", devices_);
  bench::BenchReport report;
  for (const DeviceId device : devices) report.devices.push_back(device_name(device));
  bool failed = false;
  const Interruption interruption;  // also while the result is written
  {
    const DevicesScope opened;
    std::vector<BenchCase> cases = cases_on_devices(devices);
    std::erase_if(cases, [&](const BenchCase& measured) { return measured.what.find(filter_) == std::string::npos; });
    if (cases.empty()) throw ArgumentError("--filter: no case has '" + filter_ + "' in its name");
    const auto start = std::chrono::steady_clock::now();
    for (const BenchCase& measured : cases) {
      if (interruption.flag()) break;
      try {
        // Divide the remaining time equally among the remaining cases: a case that exceeds its share shortens the
        // shares of the later cases.
        const auto left = std::max<std::chrono::duration<double>>(time - (std::chrono::steady_clock::now() - start),
                                                                  std::chrono::duration<double>::zero());
        const auto share = std::chrono::duration_cast<std::chrono::nanoseconds>(
            left / static_cast<double>(cases.size() - report.rows.size()));
        report.rows.push_back(bench::measure(measured, share, interruption.flag()));
      } catch (...) {
        err << "cox bench: " << measured.where << ": " << measured.what << ": " << describe(std::current_exception())
            << "\n"
            << std::flush;
        failed = true;
      }
    }
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report.interrupted = interruption.flag();
  }
  // Write the file first: standard output may be a pipe that no process reads any more.
  if (to_file && !is_written(write_file(json_, bench::json(report)), "cox bench", "--json", json_, err)) failed = true;
  out << (json_ == standard_output ? bench::json(report) : bench::table(report)) << std::flush;
  return failed ? ExitCode::Violation : ExitCode::Ok;
}

}  // namespace cox::tools
