#include <coxswain/tools/cox/stress/violation.hpp>

#include <coxswain/tools/cox/device_list.hpp>

#include <cstddef>

namespace cox::stress {

std::string Violation::location() const {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (client) add("client " + std::to_string(*client));
  if (device) add("device " + tools::device_name(*device));
  if (stream) add("stream " + std::to_string(*stream));
  if (sequence) add(to_string(*sequence));
  return text.empty() ? "the whole run" : text;
}

std::string clipped(const std::string& text) {
  constexpr std::size_t most = 800;  // letters
  if (text.size() <= most) return text;
  return text.substr(0, most) + "... (" + std::to_string(text.size() - most) + " more letters; --json has all)";
}

std::string to_string(const Violation& violation) {
  return "violation of " + std::string(to_string(violation.law)) + "\n  where:    " + violation.location() +
         "\n  expected: " + clipped(violation.expected) + "\n  got:      " + clipped(violation.got) + "\n";
}

}  // namespace cox::stress
