#include <coxswain/tools/cox/stress/fault.hpp>

#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <string>

namespace cox::stress {

FaultRates FaultRates::parse(std::string_view option, std::string_view text) {
  FaultRates rates;
  for (const tools::Setting& setting : tools::parse_settings(option, text)) {
    const double rate = tools::parse_probability(option, setting.value);
    if (setting.name == "throw") {
      rates.throws = rate;
    } else if (setting.name == "cancel") {
      rates.cancel = rate;
    } else if (setting.name == "expire") {
      rates.expire = rate;
    } else {
      throw tools::ArgumentError(std::string(option) + ": '" + std::string(setting.name) +
                                 "' is none of throw, cancel or expire");
    }
  }
  if (rates.throws + rates.cancel + rates.expire > 1)
    throw tools::ArgumentError(std::string(option) + ": '" + std::string(text) + "' adds up to more than 1");
  return rates;
}

Fault FaultRates::pick(Operation operation, Random& random) const noexcept {
  const double draw = random.unit();
  const bool queued = operation == Operation::Submit || operation == Operation::Blocking;
  const bool runs = queued || operation == Operation::Exclusive || operation == Operation::Launch;
  if (draw < throws) return runs ? Fault::Throw : Fault::None;
  if (draw < throws + cancel) return queued ? Fault::Cancel : Fault::None;
  if (draw < throws + cancel + expire) return queued ? Fault::Expire : Fault::None;
  return Fault::None;
}

}  // namespace cox::stress
