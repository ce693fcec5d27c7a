#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/stress/report.hpp>
#include <coxswain/tools/cox/version.hpp>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <string>
#include <utility>

namespace cox::stress {
namespace {

using Json = nlohmann::ordered_json;

double in_microseconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1'000; }

std::string utc(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Json operation_json(const Histogram& histogram, double seconds) {
  return {{"count", histogram.count()},
          {"rate", seconds > 0 ? static_cast<double>(histogram.count()) / seconds : 0.0},
          {"p50_us", in_microseconds(histogram.quantile(0.5))},
          {"p99_us", in_microseconds(histogram.quantile(0.99))},
          {"p999_us", in_microseconds(histogram.quantile(0.999))},
          {"max_us", in_microseconds(histogram.max())}};
}

Json violation_json(const Violation& violation) {
  Json json{{"law", to_string(violation.law)},
            {"where", violation.location()},
            {"expected", violation.expected},
            {"got", violation.got}};
  if (violation.client) json["client"] = *violation.client;
  if (violation.device) json["device"] = tools::device_name(*violation.device);
  if (violation.stream) json["stream"] = *violation.stream;
  if (violation.sequence && !violation.sequence->none()) json["operation"] = violation.sequence->operation();
  return json;
}

}  // namespace

std::string json(const Report& report) {
  Json devices = Json::array();
  for (const DeviceId device : report.devices) devices.push_back(tools::device_name(device));
  Json operations = Json::object();
  for (std::size_t i = 0; i < operation_count; ++i) {
    const auto operation = static_cast<Operation>(i);
    if (report.done[i]) operations[to_string(operation)] = operation_json(report.latencies[operation], report.seconds);
  }
  Json mix = Json::object();
  for (std::size_t i = 0; i < operation_count; ++i) {
    const auto operation = static_cast<Operation>(i);
    if (report.done[i]) mix[to_string(operation)] = report.mix.weight(operation);
  }
  Json rates = Json::object();
  Json faults = Json::object();
  for (std::size_t i = 1; i < fault_count; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (report.rates.rate(fault) == 0) continue;
    rates[to_string(fault)] = report.rates.rate(fault);
    faults[to_string(fault)] = report.faults[i];
  }
  Json violations = Json::array();
  for (const Violation& violation : report.violations) violations.push_back(violation_json(violation));
  Json processes = Json::array();
  for (const ProcessSummary& each : report.processes)
    processes.push_back({{"operations", each.operations},
                         {"rounds", each.rounds},
                         {"faults", each.faults},
                         {"explained_errors", each.explained_errors},
                         {"peak_rss_bytes", each.peak_rss_bytes}});
  const Statistics& s = report.statistics;
  Json json{{"schema", 1},
            {"version", std::string(tools::version)},
            {"time", utc(report.begun)},
            {"host", host_name()},
            {"ok", report.ok()},
            {"interrupted", report.interrupted},
            {"shortage", report.shortage().empty() ? Json() : Json(report.shortage())},
            {"seed", std::to_string(report.seed)},
            {"clients", report.clients},
            {"mix", std::move(mix)},
            {"payload", {{"smallest", report.payload.smallest}, {"largest", report.payload.largest}}},
            {"fault_rates", std::move(rates)},
            {"faults", std::move(faults)},
            {"explained_errors", report.explained_errors},
            {"seconds", report.seconds},
            {"devices", std::move(devices)},
            {"operations", std::move(operations)},
            {"conservation",
             {{"accepted", s.accepted},
              {"completed", s.completed},
              {"failed", s.failed},
              {"cancelled", s.cancelled},
              {"expired", s.expired}}},
            {"violations", std::move(violations)},
            {"peak_rss_bytes", report.peak_rss_bytes}};
  if (!report.processes.empty()) {
    json["process"] = report.process;
    json["processes"] = std::move(processes);
    if (report.has_digest) json["digest"] = std::to_string(report.digest());
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cox::stress
