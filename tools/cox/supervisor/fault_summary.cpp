#include <coxswain/tools/cox/supervisor/fault_summary.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <system_error>

namespace cox::tools {
namespace {

using Json = nlohmann::json;

std::string suspect(const Json& suspects) {
  if (suspects.empty()) return ", no suspect";
  const Json& first = suspects.at(0);
  return ", first suspect " + first.at("operation").get<std::string>() + " on " + first.at("place").get<std::string>() +
         " at " + first.at("site").get<std::string>();
}

}  // namespace

std::optional<std::string> fault_summary(const std::filesystem::path& report) try {
  std::ifstream file(report);
  if (!file) return std::nullopt;
  const Json json = Json::parse(file);
  return json.at("name").get<std::string>() + " (" + std::to_string(json.at("code").get<int>()) + ") from " +
         json.at("call").get<std::string>() + suspect(json.at("suspects"));
} catch (const Json::exception&) {
  return std::nullopt;
}

bool memory_is_lost(const std::filesystem::path& report) try {
  std::ifstream file(report);
  if (!file) return false;
  const auto name = Json::parse(file).at("name").get<std::string>();
  return name == "CUDA_ERROR_ECC_UNCORRECTABLE" || name == "CUDA_ERROR_CONTAINED";
} catch (const Json::exception&) {
  return false;
}

std::string text_of_report(const std::filesystem::path& report, std::size_t most) try {
  std::ifstream file(report);
  if (!file) return {};
  std::ostringstream contents;
  contents << file.rdbuf();
  std::string text = contents.str();
  if (text.size() <= most) return text;
  Json json = Json::parse(text);
  json.erase("text");  // it names the suspects, too
  Json& suspects = json.at("suspects");
  while ((text = json.dump()).size() > most) {
    if (suspects.empty()) return {};
    suspects.erase(suspects.begin() + static_cast<std::ptrdiff_t>(suspects.size() / 2), suspects.end());
  }
  return text;
} catch (const Json::exception&) {
  return {};
}

void write_report(const std::filesystem::path& report, const std::string& text) {
  errno = 0;
  std::ofstream file(report);
  file << text;
  file.close();
  if (file) return;
  const int error = errno != 0 ? errno : EIO;
  std::error_code ignored;
  std::filesystem::remove(report, ignored);
  throw std::system_error(error, std::generic_category(), report.string());
}

}  // namespace cox::tools
