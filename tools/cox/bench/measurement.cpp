#include <coxswain/tools/cox/bench/measurement.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace cox::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t warm_up = 2;
constexpr std::size_t fewest = 5;
constexpr std::size_t most = 100'000;

// Precondition: sorted, not empty.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

// "-" for 0, so that no column is empty.
std::string figure(double value, const char* format) {
  if (value == 0) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// Both fit their columns: at most seven characters up to one second, and at most six up to one terabyte per second.
std::string microseconds(double value) {
  return figure(value, value < 100 ? "%.3f" : value < 10'000 ? "%.1f" : "%.0f");
}
std::string gigabytes_per_second(double value) {
  return figure(value, value < 1 ? "%.3f" : value < 100 ? "%.3g" : "%.0f");
}

// Shortens a list of more than two devices, which always names all devices of the run, to "all COUNT".
std::string place(const std::string& where) {
  const auto others = std::ranges::count(where, ' ');
  return others < 2 || where.find('>') != std::string::npos ? where : "all " + std::to_string(others + 1);
}

std::string row(std::size_t width, const std::string& where, const std::string& what,
                const std::array<std::string, 6>& figures) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), "%-*s %-30s %7s %9s %9s %9s %6s %6s\n", static_cast<int>(width),
                where.c_str(), what.c_str(), figures[0].c_str(), figures[1].c_str(), figures[2].c_str(),
                figures[3].c_str(), figures[4].c_str(), figures[5].c_str());
  return text.data();
}

}  // namespace

Measurement measure(const BenchCase& measured, std::chrono::nanoseconds time, const std::atomic<bool>& interrupted) {
  const auto until = Clock::now() + time;
  for (std::size_t i = 0; i < warm_up; ++i) static_cast<void>(measured.sample());
  std::vector<double> taken;
  while (taken.size() < most && !interrupted && (taken.size() < fewest || Clock::now() < until))
    taken.push_back(measured.sample());
  Measurement result{.where = measured.where, .what = measured.what, .samples = taken.size()};
  if (taken.empty()) return result;
  std::ranges::sort(taken);
  result.p50 = quantile(taken, 0.5);
  result.p99 = quantile(taken, 0.99);
  result.max = taken.back();
  if (measured.bytes != 0 && result.p50 > 0)
    result.algorithm_rate = static_cast<double>(measured.bytes) / result.p50 / 1e3;
  result.bus_rate = result.algorithm_rate * measured.bus_factor;
  return result;
}

std::string table(const BenchReport& report) {
  std::size_t width = 6;
  for (const Measurement& m : report.rows) width = std::max(width, place(m.where).size());
  std::string text = row(width, "where", "what", {"samples", "p50 us", "p99 us", "max us", "GB/s", "bus"});
  for (const Measurement& m : report.rows)
    text += row(width, place(m.where), m.what,
                {std::to_string(m.samples), microseconds(m.p50), microseconds(m.p99), microseconds(m.max),
                 gigabytes_per_second(m.algorithm_rate), gigabytes_per_second(m.bus_rate)});
  if (report.interrupted) text += "interrupted\n";
  return text;
}

std::string json(const BenchReport& report) {
  using Json = nlohmann::ordered_json;
  auto rows = Json::array();
  for (const Measurement& m : report.rows) {
    Json json{{"where", m.where}, {"what", m.what},  {"samples", m.samples},
              {"p50_us", m.p50},  {"p99_us", m.p99}, {"max_us", m.max}};
    if (m.algorithm_rate != 0) json["algbw_gb_s"] = m.algorithm_rate;
    if (m.bus_rate != 0) json["busbw_gb_s"] = m.bus_rate;
    rows.push_back(std::move(json));
  }
  const Json all{{"seconds", report.seconds},
                 {"interrupted", report.interrupted},
                 {"devices", report.devices},
                 {"rows", std::move(rows)}};
  return all.dump(2) + "\n";
}

}  // namespace cox::bench
