#include <coxswain/tools/cox/stress/violation.hpp>

#include <coxswain/tools/cox/device_list.hpp>

namespace cox::stress {

std::string Violation::where() const {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (client) add("client " + std::to_string(*client));
  if (device) add("device " + tools::device_name(*device));
  if (stream) add("stream " + std::to_string(*stream));
  if (sequence) add(to_string(*sequence));
  return text.empty() ? "the whole run" : text;
}

std::string to_string(const Violation& violation) {
  return "violation of " + std::string(to_string(violation.law)) + "\n  where:    " + violation.where() +
         "\n  expected: " + violation.expected + "\n  got:      " + violation.got + "\n";
}

}  // namespace cox::stress
