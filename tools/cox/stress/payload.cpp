#include <coxswain/tools/cox/stress/payload.hpp>

#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace cox::stress {

Payload Payload::parse(std::string_view option, std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  Payload payload;
  payload.smallest = tools::parse_size(option, text.substr(0, colon));
  payload.largest = colon == text.size() ? payload.smallest : tools::parse_size(option, text.substr(colon + 1));
  const std::string given = std::string(option) + ": '" + std::string(text) + "' ";
  if (payload.smallest < word) throw tools::ArgumentError(given + "begins below 4 B, the smallest buffer");
  if (payload.smallest > payload.largest) throw tools::ArgumentError(given + "begins above its end");
  return payload;
}

std::size_t Payload::pick(Random& random) const noexcept {
  const double doublings = std::log2(static_cast<double>(largest) / static_cast<double>(smallest));
  const double size = static_cast<double>(smallest) * std::exp2(doublings * random.unit());
  const auto bytes = std::clamp(static_cast<std::size_t>(size), smallest, largest);
  return bytes / word * word;
}

}  // namespace cox::stress
