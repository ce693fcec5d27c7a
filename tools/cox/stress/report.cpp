#include <coxswain/tools/cox/stress/report.hpp>

#include <coxswain/runtime/byte_count.hpp>
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

double microseconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / microsecond; }

std::string row(std::string_view name, const Histogram& histogram, double seconds) {
  return formatted("%-14s %12llu %12.0f %10.2f %10.2f %10.2f %12.2f\n", std::string(name).c_str(),
                   static_cast<unsigned long long>(histogram.count()),
                   seconds > 0 ? static_cast<double>(histogram.count()) / seconds : 0.0,
                   microseconds(histogram.quantile(0.5)), microseconds(histogram.quantile(0.99)),
                   microseconds(histogram.quantile(0.999)), microseconds(histogram.max()));
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
    text += "; errors of collectives that they explain: " + std::to_string(report.explained_errors);
  return text.empty() ? text : text + "\n";
}

}  // namespace

std::string table(const Report& report) {
  std::string text = formatted("%-14s %12s %12s %10s %10s %10s %12s\n", "operation", "count", "rate/s", "p50 us",
                               "p99 us", "p99.9 us", "max us");
  for (std::size_t i = 0; i < operation_count; ++i) {
    const auto operation = static_cast<Operation>(i);
    if (report.done[i]) text += row(to_string(operation), report.latencies[operation], report.seconds);
  }
  const Statistics& s = report.statistics;
  text += "conservation: accepted " + std::to_string(s.accepted) + " = completed " + std::to_string(s.completed) +
          " + failed " + std::to_string(s.failed) + " + cancelled " + std::to_string(s.cancelled) + " + expired " +
          std::to_string(s.expired) + "\n";
  text += faults(report);
  text += formatted("%.1f s, %u clients, ", report.seconds, report.clients) + device_names(report.devices) +
          ", peak memory " + format_byte_count(report.peak_rss_bytes) + ", seed " + std::to_string(report.seed) +
          (report.interrupted ? ", interrupted" : "") + "\n";
  return text;
}

std::string verdict(const Report& report) {
  if (report.ok()) return "ok\n";
  std::string text = to_string(report.violations.front());
  text += "  again:    the same arguments with --seed " + std::to_string(report.seed) + "\n";
  if (const std::size_t more = report.violations.size() - 1; more > 0)
    text += "and " + std::to_string(more) + (more == 1 ? " more violation" : " more violations") + " after it\n";
  return text;
}

}  // namespace cox::stress
