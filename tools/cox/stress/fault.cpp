#include <coxswain/tools/cox/stress/fault.hpp>

#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <algorithm>
#include <string>

namespace cox::stress {

namespace {

// A fault and the member of FaultRates that holds its rate.
struct FaultRate {
  Fault fault;
  double FaultRates::* rate;
};
constexpr std::array<FaultRate, fault_count - 1> fault_rates{{{Fault::Throw, &FaultRates::throws},
                                                              {Fault::Cancel, &FaultRates::cancel},
                                                              {Fault::Expire, &FaultRates::expire},
                                                              {Fault::Stall, &FaultRates::stall},
                                                              {Fault::Missing, &FaultRates::missing},
                                                              {Fault::Mismatch, &FaultRates::mismatch},
                                                              {Fault::Shutdown, &FaultRates::shutdown},
                                                              {Fault::Leave, &FaultRates::leave},
                                                              {Fault::Poison, &FaultRates::poison}}};

bool can_have(Operation operation, Fault fault) noexcept {
  const bool queued = operation == Operation::Submit || operation == Operation::Blocking;
  switch (fault) {
    case Fault::None: return true;
    case Fault::Throw:
      return queued || operation == Operation::Exclusive || operation == Operation::Launch || is_collective(operation);
    case Fault::Cancel:
    case Fault::Expire: return queued;
    case Fault::Stall:
    case Fault::Missing:
    case Fault::Mismatch:
    case Fault::Shutdown:
    case Fault::Leave: return is_collective(operation);
    case Fault::Poison: return operation == Operation::Launch || is_collective(operation);
  }
  return false;
}

}  // namespace

FaultRates FaultRates::parse(std::string_view option, std::string_view text) {
  FaultRates rates;
  double sum = 0;
  for (const tools::Setting& setting : tools::parse_settings(option, text)) {
    const auto* const found = std::find_if(fault_rates.begin(), fault_rates.end(), [&](const FaultRate& each) {
      return to_string(each.fault) == setting.name;
    });
    const double rate = tools::parse_probability(option, setting.value);
    if (found == fault_rates.end())
      throw tools::ArgumentError(std::string(option) + ": '" + std::string(setting.name) + "' is none of " +
                                 tools::one_of({fault_names.begin() + 1, fault_names.end()}));
    rates.*found->rate = rate;
    sum += rate;
  }
  if (sum > 1) throw tools::ArgumentError(std::string(option) + ": '" + std::string(text) + "' adds up to more than 1");
  return rates;
}

double FaultRates::rate(Fault fault) const noexcept {
  const auto* const found = std::ranges::find(fault_rates, fault, &FaultRate::fault);
  return found == fault_rates.end() ? 0 : this->*found->rate;
}

Fault FaultRates::pick(Operation operation, Random& random) const noexcept {
  double draw = random.unit();
  for (const FaultRate& each : fault_rates) {
    draw -= this->*each.rate;
    if (draw < 0) return can_have(operation, each.fault) ? each.fault : Fault::None;
  }
  return Fault::None;
}

}  // namespace cox::stress
