#include <coxswain/tools/cox/supervisor/restart_causes.hpp>

#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/exit_code.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>

namespace cox::tools {
namespace {

int parse_code(std::string_view option, std::string_view text) {
  int code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code);
  if (error != std::errc() || end != text.data() + text.size() || code < 1 || code > 255)
    throw ArgumentError(std::string(option) + ": '" + std::string(text) +
                        "' is neither an exit code from 1 to 255 nor 'signal'");
  return code;
}

}  // namespace

RestartCauses RestartCauses::parse(std::string_view option, std::string_view text) {
  RestartCauses causes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (part == "signal") {
      causes.signals = true;
    } else {
      causes.codes.push_back(parse_code(option, part));
    }
    begin = end + 1;
  }
  return causes;
}

bool RestartCauses::contain(const ProgramEnd& end) const noexcept {
  if (end.signal != 0) return signals;
  const auto code = static_cast<ExitCode>(end.code);
  return code == ExitCode::GpuFault || code == ExitCode::WorldGone || std::ranges::find(codes, end.code) != codes.end();
}

}  // namespace cox::tools
