#include <coxswain/tools/cox/world_stress/world_stress.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace cox::stress {
namespace {

template <class... Args>
std::string formatted(const char* format, Args... args) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, args...);
  return text.data();
}

double milliseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

// `sorted` is not empty.
double quantile(const std::vector<std::chrono::nanoseconds>& sorted, double part) {
  const auto at = static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1) + 0.5);
  return milliseconds(sorted[at]);
}

}  // namespace

Notice notice_of(const WorldFaultPlan& plan) noexcept {
  if (plan.fault == WorldFault::Kill) return Notice::Kill;
  if (plan.fault == WorldFault::Stop) return Notice::Stop;
  if (plan.cut != Cut::Silent) return Notice::CutEnds;
  return plan.at().is_data ? Notice::CutSilentData : Notice::CutSilent;
}

std::string WorldStressResult::to_string() const {
  std::string text = formatted("%-26s", "before the message");
  for (const std::string_view fault : world_fault_names) text += formatted(" %7s", std::string(fault).c_str());
  text += "   rounds by fault\n";
  for (std::size_t state = 0; state < states.size(); ++state) {
    text += formatted("%-26s", std::string(protocol_states()[state].name).c_str());
    for (const std::uint64_t count : states[state]) text += formatted(" %7llu", static_cast<unsigned long long>(count));
    text += "\n";
  }
  text += formatted("%-26s %9s %9s %9s %9s %9s\n", "until notified, ms", "processes", "p50", "p90", "p99", "max");
  for (std::size_t fault = 0; fault < notified.size(); ++fault) {
    std::vector<std::chrono::nanoseconds> sorted = notified[fault];
    if (sorted.empty()) continue;
    std::ranges::sort(sorted);
    text +=
        formatted("%-26s %9zu %9.1f %9.1f %9.1f %9.1f\n", std::string(notice_names[fault]).c_str(), sorted.size(),
                  quantile(sorted, 0.5), quantile(sorted, 0.9), quantile(sorted, 0.99), milliseconds(sorted.back()));
  }
  text += std::to_string(rounds) + " rounds, " + std::to_string(repeated) +
          " repeated because this process was held up; " + std::to_string(wrong.size()) + " wrong\n";
  if (!ok()) text += "the first wrong one: " + wrong.front() + "\n";
  return text + (ok() ? "ok\n" : "failed\n");
}

WorldStressResult run_world_stress(const WorldStressOptions& options, const std::vector<std::string>& program,
                                   const std::atomic<bool>& interrupted,
                                   const std::function<void(std::uint64_t rounds)>& ended) {
  constexpr std::uint64_t most_repeated = 20;  // in succession
  WorldStressResult result;
  result.states.resize(protocol_states().size());
  for (std::uint64_t round = 0; round < options.rounds && !interrupted; ++round) {
    const WorldFaultPlan plan = plan_world_fault(options.rates, options.seed, round, options.processes);
    WorldRoundOutcome outcome = run_world_round(options, plan, program);
    for (std::uint64_t i = 0; outcome.is_held_up && i < most_repeated && !interrupted; ++i) {
      ++result.repeated;
      outcome = run_world_round(options, plan, program);
    }
    const auto fault = static_cast<std::size_t>(plan.fault);
    ++result.rounds;
    ++result.states[plan.state][fault];
    auto& notified = result.notified[static_cast<std::size_t>(notice_of(plan))];
    notified.insert(notified.end(), outcome.notified.begin(), outcome.notified.end());
    if (outcome.is_held_up) outcome.wrong = plan.to_string() + ": this process was held up each time";
    if (!outcome.wrong.empty()) result.wrong.push_back("round " + std::to_string(round) + ", " + outcome.wrong);
    ended(result.rounds);
  }
  return result;
}

}  // namespace cox::stress
