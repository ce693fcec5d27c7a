#include <coxswain/tools/cox/doctor/check.hpp>

#include <array>
#include <charconv>
#include <string_view>

namespace cox::tools {
namespace {

using Severity = Finding::Severity;

struct Judgement {
  Severity severity = Severity::Ok;
  std::string_view reason;
  std::string_view fix;
};

bool is_on(std::string_view value) noexcept { return !value.empty() && value != "0"; }

Judgement launch_blocking(std::string_view value, const Facts& facts) {
  if (!is_on(value)) return {};
  if (facts.gpus.size() < 2) return {Severity::Warning, "each launch waits for its kernel", "unset it"};
  return {Severity::Wrong, "each launch waits for its kernel, so that collectives of several GPUs in a process hang",
          "unset it"};
}

Judgement visible_devices(std::string_view value, const Facts&) {
  if (!value.empty() && !value.starts_with("-1") && value != "NoDevFiles") return {};
  return {Severity::Wrong, "hides all GPUs", "unset it, or list the GPUs"};
}

Judgement max_connections(std::string_view value, const Facts&) {
  constexpr int usual = 8;
  int queues = usual;
  std::from_chars(value.data(), value.data() + value.size(), queues);
  if (queues >= usual) return {};
  return {Severity::Warning, "streams share so few hardware queues that they wait for one another",
          "unset it, or set it to 32"};
}

Judgement nccl_debug(std::string_view value, const Facts&) {
  if (value != "TRACE") return {};
  return {Severity::Warning, "NCCL writes a line for each call, which costs more than the calls",
          "set it to WARN or INFO"};
}

Judgement nccl_peer(std::string_view value, const Facts&) {
  if (!is_on(value)) return {};
  return {Severity::Warning, "NCCL transfers data through host memory", "unset it"};
}

Judgement shown(std::string_view, const Facts&) { return {}; }

struct Rule {
  const char* name;
  Judgement (*judge)(std::string_view value, const Facts& facts);
};

constexpr std::array rules{
    Rule{"CUDA_VISIBLE_DEVICES", visible_devices},
    Rule{"CUDA_LAUNCH_BLOCKING", launch_blocking},
    Rule{"CUDA_DEVICE_MAX_CONNECTIONS", max_connections},
    Rule{"CUDA_MODULE_LOADING", shown},
    Rule{"NCCL_DEBUG", nccl_debug},
    Rule{"NCCL_P2P_DISABLE", nccl_peer},
};

}  // namespace

void check_environment(const Facts& facts, Findings& findings) {
  for (const Rule& rule : rules) {
    const auto found = facts.environment.find(rule.name);
    if (found == facts.environment.end()) continue;
    const Judgement judgement = rule.judge(found->second, facts);
    std::string text = "'" + found->second + "'";
    if (!judgement.reason.empty()) text += ": " + std::string(judgement.reason);
    findings.push_back({judgement.severity, rule.name, text, std::string(judgement.fix)});
  }
}

}  // namespace cox::tools
