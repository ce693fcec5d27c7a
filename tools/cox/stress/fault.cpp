#include <coxswain/tools/cox/stress/fault.hpp>

#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <algorithm>
#include <string>

namespace cox::stress {

namespace {

// Beside each fault where its rate is.
struct Location {
  Fault fault;
  double FaultRates::* rate;
};
constexpr std::array<Location, fault_count - 1> places{{{Fault::Throw, &FaultRates::throws},
                                                        {Fault::Cancel, &FaultRates::cancel},
                                                        {Fault::Expire, &FaultRates::expire},
                                                        {Fault::StallReport, &FaultRates::stall},
                                                        {Fault::Missing, &FaultRates::missing},
                                                        {Fault::Mismatch, &FaultRates::mismatch},
                                                        {Fault::Shutdown, &FaultRates::shutdown},
                                                        {Fault::Leave, &FaultRates::leave}}};

bool can_have(Operation operation, Fault fault) noexcept {
  const bool queued = operation == Operation::Submit || operation == Operation::Blocking;
  switch (fault) {
    case Fault::None: return true;
    case Fault::Throw:
      return queued || operation == Operation::Exclusive || operation == Operation::Launch || is_collective(operation);
    case Fault::Cancel:
    case Fault::Expire: return queued;
    case Fault::StallReport:
    case Fault::Missing:
    case Fault::Mismatch:
    case Fault::Shutdown:
    case Fault::Leave: return is_collective(operation);
  }
  return false;
}

}  // namespace

FaultRates FaultRates::parse(std::string_view option, std::string_view text) {
  FaultRates rates;
  double sum = 0;
  for (const tools::Setting& setting : tools::parse_settings(option, text)) {
    const auto* const place = std::find_if(places.begin(), places.end(),
                                           [&](const Location& p) { return to_string(p.fault) == setting.name; });
    const double rate = tools::parse_probability(option, setting.value);
    if (place == places.end())
      throw tools::ArgumentError(std::string(option) + ": '" + std::string(setting.name) + "' is none of " +
                                 tools::one_of({fault_names.begin() + 1, fault_names.end()}));
    rates.*place->rate = rate;
    sum += rate;
  }
  if (sum > 1) throw tools::ArgumentError(std::string(option) + ": '" + std::string(text) + "' adds up to more than 1");
  return rates;
}

double FaultRates::rate(Fault fault) const noexcept {
  const auto* const place = std::ranges::find(places, fault, &Location::fault);
  return place == places.end() ? 0 : this->*place->rate;
}

Fault FaultRates::pick(Operation operation, Random& random) const noexcept {
  double draw = random.unit();
  for (const Location& location : places) {
    draw -= this->*location.rate;
    if (draw < 0) return can_have(operation, location.fault) ? location.fault : Fault::None;
  }
  return Fault::None;
}

}  // namespace cox::stress
