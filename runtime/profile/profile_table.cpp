#include <coxswain/runtime/profile/profile_table.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

namespace cox {
namespace {

using Row = std::array<std::string, 4>;

std::string two_decimals(double value, const char* unit) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, unit);
  return text.data();
}

std::string share(std::chrono::nanoseconds part, std::chrono::nanoseconds whole) {
  if (whole.count() == 0) return "-";
  return two_decimals(100.0 * static_cast<double>(part.count()) / static_cast<double>(whole.count()), "%");
}

// The first column is left-aligned, the figures are right-aligned.
std::string lines_of(const std::vector<Row>& rows) {
  std::array<std::size_t, 4> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      text += "| " + (i == 0 ? row[i] + padding : padding + row[i]) + ' ';
    }
    text += "|\n";
  }
  return text;
}

}  // namespace

void ProfileTable::add(std::string_view name, std::chrono::nanoseconds duration) {
  auto row = rows_.find(name);
  if (row == rows_.end()) {
    if (rows_.size() >= names_) return count_omitted();
    row = rows_.emplace(name, Sum{}).first;
  }
  row->second.total += duration;
  ++row->second.count;
}

std::string ProfileTable::to_string() const {
  if (empty()) return {};
  std::vector<std::pair<std::string_view, Sum>> sums(rows_.begin(), rows_.end());
  std::ranges::sort(sums, {}, [](const auto& row) { return std::pair(-row.second.total, row.first); });
  Sum all;
  for (const auto& [name, sum] : sums) all = {all.total + sum.total, all.count + sum.count};

  std::vector<Row> rows{{"Name", "Duration", "Num Computed", "Ratio"}};
  for (const auto& [name, sum] : sums)
    rows.push_back(
        {std::string(name), rounded_duration(sum.total), std::to_string(sum.count), share(sum.total, all.total)});
  rows.push_back({"Total", rounded_duration(all.total), std::to_string(all.count), share(all.total, all.total)});
  if (omitted_ > 0) rows.push_back({"Left out", "-", std::to_string(omitted_), "-"});
  return lines_of(rows);
}

std::string rounded_duration(std::chrono::nanoseconds duration) {
  const std::int64_t count = duration.count();
  if (count < 1'000) return std::to_string(count) + " ns";
  // A value that would round up to 1000 is shown in the next larger unit.
  if (count < 999'995) return two_decimals(static_cast<double>(count) / 1e3, "us");
  if (count < 999'995'000) return two_decimals(static_cast<double>(count) / 1e6, "ms");
  return two_decimals(static_cast<double>(count) / 1e9, "s");
}

}  // namespace cox
