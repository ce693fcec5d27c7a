#include <coxswain/tools/cox/world_stress/world_fault.hpp>

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

namespace cox::stress {
namespace {

using namespace detail::world;

template <class M>
ProtocolState state(std::string_view name, ProtocolState rest) {
  rest.name = name;
  rest.type = Message(M{}).index();
  return rest;
}

}  // namespace

// A Joined is not sent, a Rejected only to a process that does not belong to the world, an Awaited only if joining
// takes long.
const std::array<ProtocolState, 23>& protocol_states() {
  static const std::array<ProtocolState, 23> states{
      state<Hello>("Hello", {.is_joining = true}),
      state<Welcome>("Welcome", {.of_leader = true, .is_joining = true, .most = 2}),
      state<DataHello>("DataHello", {.is_data = true, .is_joining = true}),
      state<Connected>("Connected", {.is_joining = true}),
      state<Connected>("Connected of the leader", {.of_leader = true, .is_joining = true, .most = 2}),
      state<Open>("Open", {.most = 2}),
      state<Ask>("Ask", {.most = 20}),
      state<Progress>("Progress", {.most = 3}),
      state<Heartbeat>("Heartbeat", {.most = 4}),
      state<Heartbeat>("Heartbeat of the leader", {.of_leader = true, .most = 6}),
      state<Release>("Release", {.of_leader = true, .most = 40}),
      state<Inputs>("Inputs", {.is_data = true, .most = 40}),
      state<Refuse>("Refuse", {.scenario = Scenario::Refusals, .most = 2}),
      state<Refused>("Refused", {.scenario = Scenario::Refusals, .of_leader = true, .most = 6}),
      state<Break>("Break", {.scenario = Scenario::Aborts, .most = 2}),
      state<Broken>("Broken", {.scenario = Scenario::Aborts, .of_leader = true, .most = 6}),
      state<Open>("Open of a later epoch", {.scenario = Scenario::Aborts, .most = 4, .skipped = 3}),
      state<Close>("Close", {.scenario = Scenario::Aborts, .most = 2}),
      state<Why>("Why", {.scenario = Scenario::Overdue, .of_leader = true}),
      state<Answer>("Answer", {.scenario = Scenario::Overdue}),
      state<AbortedOperation>("AbortedOperation", {.is_data = true, .is_second = true}),
      state<Gone>("Gone", {.of_leader = true, .is_second = true, .most = 2}),
      state<Bye>("Bye", {.scenario = Scenario::Leaving}),
  };
  return states;
}

std::string WorldFaultPlan::to_string() const {
  const std::string who = "process " + std::to_string(victim);
  const auto name = [this](std::string_view what) { return std::string(what); };
  if (fault == WorldFault::Slow)
    return "messages from and to " + who + " arrive " + std::to_string(delay.count()) + " ms later (" +
           name(scenario_names[static_cast<std::size_t>(at().scenario)]) + ")";
  const std::string where = " before message " + std::to_string(count) + " of type " + name(at().name) + " of " + who +
                            " (" + name(scenario_names[static_cast<std::size_t>(at().scenario)]) + ")";
  if (fault == WorldFault::Cut)
    return "the connection to process " + std::to_string(peer) + " is cut (" +
           name(cut_names[static_cast<std::size_t>(cut)]) + ")" + where;
  return name(world_fault_names[static_cast<std::size_t>(fault)]) + where;
}

WorldFaultRates WorldFaultRates::parse(std::string_view option, std::string_view text) {
  WorldFaultRates rates;
  rates.weights.fill(0);
  const auto weight = [&](std::string_view name) -> double& {
    const auto* const found = std::ranges::find(world_fault_names, name);
    if (found == world_fault_names.end())
      throw tools::ArgumentError(std::string(option) + ": with --world '" + std::string(name) + "' is none of " +
                                 tools::one_of({world_fault_names.begin(), world_fault_names.end()}));
    return rates.weights[static_cast<std::size_t>(found - world_fault_names.begin())];
  };
  if (text.find_first_of("=,") == std::string_view::npos)
    weight(text) = 1;
  else
    for (const tools::Setting& setting : tools::parse_settings(option, text))
      weight(setting.name) = tools::parse_probability(option, setting.value);
  if (std::accumulate(rates.weights.begin(), rates.weights.end(), 0.0) <= 0)
    throw tools::ArgumentError(std::string(option) + ": '" + std::string(text) + "' has no fault");
  return rates;
}

WorldFaultPlan plan_world_fault(const WorldFaultRates& rates, std::uint64_t seed, std::uint64_t round,
                                std::uint16_t processes) {
  Random random(Random::derived(seed, round));
  WorldFaultPlan plan;
  double draw = random.unit() * std::accumulate(rates.weights.begin(), rates.weights.end(), 0.0);
  std::size_t fault = 0;
  while (fault + 1 < rates.weights.size() && (draw -= rates.weights[fault]) >= 0) ++fault;
  while (rates.weights[fault] <= 0) --fault;
  plan.fault = static_cast<WorldFault>(fault);
  plan.state = static_cast<std::size_t>(round % protocol_states().size());
  plan.count = 1 + random.below(plan.at().most);
  const auto followers = static_cast<std::uint64_t>(processes - 1);
  plan.victim = static_cast<std::uint16_t>(plan.at().of_leader                          ? 0
                                           : plan.at().is_data && !plan.at().is_joining ? random.below(processes)
                                                                                        : 1 + random.below(followers));
  // The others cannot be told to do without a process that is chosen later.
  plan.peer = static_cast<std::uint16_t>(plan.victim == 0 ? 1 + random.below(followers) : 0);
  if (plan.at().is_data) {
    const auto others = plan.at().is_joining ? plan.victim : processes;  // a process connects to those before it
    do plan.peer = static_cast<std::uint16_t>(random.below(others));
    while (plan.peer == plan.victim);
  }
  if (plan.at().is_second) {
    if (plan.fault != WorldFault::Stop) plan.fault = WorldFault::Kill;
    plan.victim = plan.at().of_leader ? 0 : 1;
  }
  if (plan.fault == WorldFault::Cut && plan.at().is_joining) plan.count = 1;  // each connection has one of them
  plan.cut = static_cast<Cut>(random.below(cut_names.size()));
  plan.delay = std::chrono::milliseconds(1 + random.below(60));
  return plan;
}

}  // namespace cox::stress
