#include <coxswain/perf/harness/nccl_tests.hpp>

#include <array>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace cox::perf {
namespace {

// The columns size, count, type, redop and root, then time, algbw, busbw and wrong: first out of place, then in place.
constexpr std::size_t columns_before = 5;
constexpr std::size_t columns_each = 4;

double number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : std::numeric_limits<double>::quiet_NaN();
}

std::string quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::optional<NcclTestsRow> find_nccl_tests_row(const std::string& output, std::size_t bytes, bool in_place) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    const std::vector<std::string> columns{std::istream_iterator<std::string>(words), {}};
    if (columns.size() < columns_before + 2 * columns_each || columns.front() != std::to_string(bytes)) continue;
    const std::size_t first = columns_before + (in_place ? columns_each : 0);
    return NcclTestsRow{number(columns[first]), number(columns[first + 1]), number(columns[first + 2]),
                        number(columns[first + 3])};
  }
  return std::nullopt;
}

NcclTestsRow run_nccl_tests(const std::string& folder, std::size_t ranks, std::size_t bytes, bool in_place) {
  const std::string size = std::to_string(bytes);
  const std::string command = quoted(folder + "/all_reduce_perf") + " -b " + size + " -e " + size + " -t " +
                              std::to_string(ranks) + " -g 1 -d float -o sum 2>&1";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string output;
  std::array<char, 4096> block{};
  while (const std::size_t read = std::fread(block.data(), 1, block.size(), pipe.get()))
    output.append(block.data(), read);
  if (const auto row = find_nccl_tests_row(output, bytes, in_place)) return *row;
  throw std::runtime_error(command + " has no row for " + size + " B:\n" + output);
}

}  // namespace cox::perf
