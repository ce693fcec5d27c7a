#include <coxswain/servers/cuda/driver/fault_file.hpp>

#include <coxswain/runtime/telemetry/json_text.hpp>

#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>

namespace cox::detail {
namespace {

// "2026-11-21T10:30:00.250Z"
std::string utc(std::chrono::system_clock::time_point when) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(when.time_since_epoch());
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> day{};
  const std::size_t length = std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  const std::string fraction = std::to_string(1000 + since.count() % 1000);
  return std::string(day.data(), length) + "." + fraction.substr(1) + "Z";
}

std::string json(const GpuFault::Suspect& suspect) {
  return "{\"operation\": " + json_text(suspect.operation) + ", \"place\": " + json_text(suspect.place) +
         ", \"site\": " + json_text(suspect.site) + "}";
}

bool write_all(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace

std::string fault_json(const GpuFault& fault) {
  std::string text = "{\n";
  text += "  \"exit_code\": " + std::to_string(gpu_fault_exit_code) + ",\n";
  text += "  \"time\": " + json_text(utc(fault.when)) + ",\n";
  text += "  \"pid\": " + std::to_string(getpid()) + ",\n";
  text += "  \"code\": " + std::to_string(fault.code) + ",\n";
  text += "  \"name\": " + json_text(fault.name) + ",\n";
  text += "  \"call\": " + json_text(fault.call) + ",\n";
  text += "  \"text\": " + json_text(fault.to_string()) + ",\n";
  text += "  \"suspects\": [";
  for (const GpuFault::Suspect& suspect : fault.suspects)
    text += (&suspect == fault.suspects.data() ? "\n    " : ",\n    ") + json(suspect);
  return text + (fault.suspects.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

std::string write_fault_file(const GpuFault& fault, const std::string& path) {
  const std::string beside = path + "." + std::to_string(getpid()) + ".tmp";
  if (write_all(beside, fault_json(fault)) && std::rename(beside.c_str(), path.c_str()) == 0) return {};
  const int error = errno;
  static_cast<void>(std::remove(beside.c_str()));
  return "cannot write '" + path + "': " + std::generic_category().message(error);
}

}  // namespace cox::detail
