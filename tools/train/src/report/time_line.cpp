#include <report/time_line.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

namespace train {
namespace {

using cox::trace::Category;
using cox::trace::Event;
using cox::trace::Track;

constexpr double width = 1000;
constexpr double label_width = 150;
constexpr double row_height = 26;

bool is_drawn(const Event& event) {
  return event.track.kind == Track::Kind::Stream || event.track.kind == Track::Kind::Communicator;
}

std::string label(const Track& track) {
  const char* const kind = track.kind == Track::Kind::Communicator ? "communicator" : "stream";
  return track.device.to_string() + " " + kind + " " + std::to_string(track.id);
}

// The class of the rectangle, which selects its colour in the page.
std::string_view colour(const Event& event) {
  const std::string_view name = event.name;
  if (event.category == Category::Collective || name.starts_with("all_") || name.starts_with("reduce") ||
      name == "send" || name == "recv" || name == "broadcast")
    return "exchange";
  if (name.find("backward") != std::string_view::npos) return "backward";
  if (name == "matrix_product") return "product";
  if (name == "adam_w" || name == "square_sum") return "update";
  return "other";
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

template <class... Values>
void append(std::string& text, const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof(line), format, values...);
  text += line;
}

}  // namespace

std::string time_line(const cox::trace::Recording& recording) {
  std::uint64_t begin = UINT64_MAX;
  std::uint64_t end = 0;
  std::set<Track> rows;
  for (const Event& event : recording.events) {
    if (!is_drawn(event)) continue;
    begin = std::min(begin, event.begin);
    end = std::max(end, event.end);
    rows.insert(event.track);
  }
  if (rows.empty()) return {};
  std::vector<Track> order(rows.begin(), rows.end());
  std::ranges::sort(order, {}, [](const Track& track) { return std::tuple(track.device, track.kind, track.id); });

  const double scale = (width - label_width) / static_cast<double>(std::max<std::uint64_t>(1, end - begin));
  std::string svg;
  append(svg, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"time line of one step\">\n", width,
         row_height * static_cast<double>(rows.size()) + 24);
  for (std::size_t row = 0; row < order.size(); ++row) {
    const double top = row_height * static_cast<double>(row);
    append(svg, "<g>\n<text x=\"0\" y=\"%.0f\">%s</text>\n", top + 17, label(order[row]).c_str());
    for (const Event& event : recording.events) {
      if (event.track != order[row]) continue;
      append(svg, "<rect class=\"%s\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%.0f\"><title>",
             std::string(colour(event)).c_str(), label_width + scale * static_cast<double>(event.begin - begin),
             top + 2, std::max(0.3, scale * static_cast<double>(event.end - event.begin)), row_height - 4);
      svg += escaped(event.name);
      append(svg, ": %.3f ms</title></rect>\n", static_cast<double>(event.end - event.begin) / 1e6);
    }
    svg += "</g>\n";
  }
  const double axis = row_height * static_cast<double>(rows.size()) + 18;
  append(svg, "<text x=\"%.0f\" y=\"%.0f\">0 ms</text>", label_width, axis);
  append(svg, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%.1f ms</text>\n</svg>\n", width, axis,
         static_cast<double>(end - begin) / 1e6);
  return svg;
}

}  // namespace train
