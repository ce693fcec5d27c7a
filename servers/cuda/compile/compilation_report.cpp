#include <coxswain/servers/cuda/compile/compilation_report.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <set>
#include <vector>

namespace cox::detail {
namespace {

constexpr std::size_t max_log_lines = 200;
constexpr std::size_t max_source_lines = 100;
constexpr std::size_t context = 2;  // lines shown before and after one that the log names

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The number in "FILE(NUMBER)" at the beginning of a line, 0 if there is none.
std::size_t named_line(std::string_view line, std::string_view file) {
  if (!line.starts_with(file) || !line.substr(file.size()).starts_with('(')) return 0;
  std::size_t number = 0;
  std::from_chars(line.data() + file.size() + 1, line.data() + line.size(), number);
  return number;
}

std::string excerpts(const std::vector<std::string_view>& source, const std::set<std::size_t>& named) {
  std::set<std::size_t> shown;
  for (const std::size_t number : named)
    for (std::size_t i = number > context ? number - context : 1; i <= std::min(number + context, source.size()); ++i)
      if (shown.size() < max_source_lines) shown.insert(i);
  std::string text;
  std::size_t last = 0;
  for (const std::size_t number : shown) {
    if (last != 0 && number != last + 1) text += "    ...\n";
    text += fmt::format("{} {:5} | {}\n", named.contains(number) ? '>' : ' ', number, source[number - 1]);
    last = number;
  }
  return text;
}

}  // namespace

std::string compilation_report(std::string_view log, std::string_view source, std::string_view file) {
  const std::vector<std::string_view> source_lines = lines_of(source);
  std::string text = "[Compilation Error]\n";
  std::set<std::size_t> named;
  std::size_t count = 0;
  for (const std::string_view line : lines_of(log)) {
    if (line.empty()) continue;
    if (++count > max_log_lines) {
      text += " ...\n";
      break;
    }
    text.append(" ").append(line).append("\n");
    if (const std::size_t number = named_line(line, file); number != 0 && number <= source_lines.size())
      named.insert(number);
  }
  if (!named.empty()) text += "[Source]\n" + excerpts(source_lines, named);
  text.pop_back();
  return text;
}

}  // namespace cox::detail
