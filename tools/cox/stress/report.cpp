#include <coxswain/tools/cox/stress/report.hpp>

#include <coxswain/tools/cox/byte_text.hpp>
#include <coxswain/tools/cox/device_list.hpp>

#include <cstdio>

namespace cox::stress {
namespace {

constexpr double microsecond = 1'000;  // ns

template <class... Args>
std::string formatted(const char* format, Args... args) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, args...);
  return text.data();
}

// Three digits: the buckets of the histograms are 25 % wide.
std::string microseconds(std::uint64_t nanoseconds) {
  const double value = static_cast<double>(nanoseconds) / microsecond;
  return formatted(value < 10 ? "%.2f" : value < 100 ? "%.1f" : "%.0f", value);
}

std::string row(std::string_view name, const Histogram& histogram, double seconds) {
  return formatted("%-14s %11llu %10.0f %9s %9s %9s %11s\n", std::string(name).c_str(),
                   static_cast<unsigned long long>(histogram.count()),
                   seconds > 0 ? static_cast<double>(histogram.count()) / seconds : 0.0,
                   microseconds(histogram.quantile(0.5)).c_str(), microseconds(histogram.quantile(0.99)).c_str(),
                   microseconds(histogram.quantile(0.999)).c_str(), microseconds(histogram.max()).c_str());
}

std::string device_names(const std::vector<DeviceId>& devices) {
  std::string text;
  for (const DeviceId device : devices) text += (text.empty() ? "" : " ") + tools::device_name(device);
  return text;
}

// Empty if there were none.
std::string faults(const Report& report) {
  std::string text;
  for (std::size_t i = 1; i < fault_count; ++i) {
    if (report.faults[i] == 0) continue;
    text += (text.empty() ? "faults: " : ", ") + std::string(fault_names[i]) + " " + std::to_string(report.faults[i]);
  }
  if (report.explained_errors > 0)
    text += "; errors of collectives that these faults explain: " + std::to_string(report.explained_errors);
  return text.empty() ? text : text + "\n";
}

// Empty unless it was a SharedRun.
std::string process_rows(const Report& report) {
  if (report.processes.empty()) return {};
  std::string text = formatted("%-14s %11s %10s %9s %9s %11s\n", "process", "operations", "rounds", "faults",
                               "explained", "peak memory");
  for (std::size_t i = 0; i < report.processes.size(); ++i) {
    const ProcessSummary& each = report.processes[i];
    const std::size_t number = report.processes.size() == 1 ? report.process : i;
    text += formatted(
        "%-14zu %11llu %10llu %9llu %9llu %11s\n", number, static_cast<unsigned long long>(each.operations),
        static_cast<unsigned long long>(each.rounds), static_cast<unsigned long long>(each.faults),
        static_cast<unsigned long long>(each.explained_errors), tools::short_byte_count(each.peak_rss_bytes).c_str());
  }
  if (report.has_digest)
    text += formatted("digest of all results: %016llx\n", static_cast<unsigned long long>(report.digest()));
  return text;
}

}  // namespace

std::uint64_t Report::digest() const noexcept {
  std::uint64_t sum = 0;
  for (const ProcessSummary& each : processes) sum += each.digest;
  return sum;
}

std::string table(const Report& report) {
  std::string text = formatted("%-14s %11s %10s %9s %9s %9s %11s\n", "operation", "count", "rate/s", "p50 us", "p99 us",
                               "p99.9 us", "max us");
  for (std::size_t i = 0; i < operation_count; ++i) {
    const auto operation = static_cast<Operation>(i);
    if (report.done[i]) text += row(to_string(operation), report.latencies[operation], report.seconds);
  }
  const Statistics& s = report.statistics;
  text += "conservation: accepted " + std::to_string(s.accepted) + "\n  = completed " + std::to_string(s.completed) +
          " + failed " + std::to_string(s.failed) + " + cancelled " + std::to_string(s.cancelled) + " + expired " +
          std::to_string(s.expired) + "\n";
  text += faults(report);
  if (report.without_pinned_memory > 0)
    text += "copies without page-locked memory, because host.pinned_memory is small: " +
            std::to_string(report.without_pinned_memory) + "\n";
  text += formatted("%.1f s, %u clients, ", report.seconds, report.clients) + device_names(report.devices) +
          "\npeak memory " + tools::short_byte_count(report.peak_rss_bytes) + ", seed " + std::to_string(report.seed) +
          (report.interrupted ? ", interrupted" : "") + "\n" + process_rows(report);
  return text;
}

std::string Report::shortage() const {
  for (const Violation& violation : violations) {
    for (const char* sign : {"the process could not get", "Resource temporarily unavailable", "Cannot allocate memory",
                             "Too many open files", "std::bad_alloc"})
      if (violation.got.find(sign) != std::string::npos) return violation.got;
  }
  return "";
}

std::string verdict(const Report& report, const std::string& flight_recorder) {
  if (report.ok()) return "ok\n";
  if (const std::string shortage = report.shortage(); !shortage.empty())
    return "stopped: this process cannot get a resource that the run needs; the laws were not judged\n  got:      " +
           clipped(shortage) + "\n";
  std::string text = to_string(report.violations.front());
  if (!flight_recorder.empty()) text += "  recorder: " + flight_recorder + "\n";
  text += "  again:    the same arguments with --seed " + std::to_string(report.seed) + "\n";
  if (const std::size_t more = report.violations.size() - 1; more > 0)
    text += "and " + std::to_string(more) + (more == 1 ? " more violation" : " more violations") + " after it\n";
  return text;
}

}  // namespace cox::stress
