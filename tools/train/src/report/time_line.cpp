#include <report/time_line.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

namespace train {
namespace {

using cox::trace::Category;
using cox::trace::Event;
using cox::trace::Track;

constexpr double width = 1000;
constexpr double label_width = 200;
constexpr double right_margin = 30;
constexpr double row_height = 26;
constexpr double least_width = 0.4;  // of a rectangle

/// What is drawn in one colour.
struct Group {
  const char* name;
  const char* colour;
  const char* text;
};

constexpr Group product{"product", "#4e79a7", "matrix products"};
constexpr Group backward{"backward", "#76b7b2", "other kernels of the backward pass"};
constexpr Group update{"update", "#b07aa1", "optimizer"};
constexpr Group replay{"replay", "#f28e2b", "replay of the captured step"};
constexpr Group exchange{"exchange", "#e15759", "collectives and transfers"};
constexpr Group other{"other", "#9aa0a6", "other"};
constexpr std::array groups{&product, &backward, &update, &replay, &exchange, &other};

bool is_transfer(const Event& event) {
  const std::string_view name = event.name;
  return name == "send" || name == "recv";
}

const Group& group_of(const Event& event) {
  const std::string_view name = event.name;
  if (event.category == Category::Collective || name.starts_with("all_") || name.starts_with("reduce") ||
      name == "broadcast" || is_transfer(event))
    return exchange;
  if (name.starts_with("matrix_product")) return product;
  if (name.find("backward") != std::string_view::npos || name == "sum_chunks") return backward;
  if (name.starts_with("adam_w") || name == "square_sum" || name == "total" || name == "clip_factor" ||
      name == "round_elements")
    return update;
  if (name == "replay") return replay;
  return other;
}

bool is_drawn(const Event& event) {
  const bool in_row = event.track.kind == Track::Kind::Stream || event.track.kind == Track::Kind::Communicator;
  const std::string_view name = event.name;
  return in_row && name != "sync" && name != "end of a replay";
}

struct Row {
  Track track;
  std::string label;
  std::vector<const Event*> events;
};

// What a stream does: the kernels and copies of a client, or what the library runs beside it.
const char* work_of(const std::vector<const Event*>& events) {
  const auto is_exchange = [](const Event* event) { return &group_of(*event) == &exchange; };
  if (!std::ranges::all_of(events, is_exchange)) return "work";
  if (std::ranges::all_of(events, [](const Event* event) { return is_transfer(*event); })) return "transfers";
  const bool transfers = std::ranges::any_of(events, [](const Event* event) { return is_transfer(*event); });
  return transfers ? "collectives, transfers" : "collectives";
}

std::vector<Row> rows_of(const cox::trace::Recording& recording) {
  std::map<Track, std::vector<const Event*>> tracks;
  for (const Event& event : recording.events)
    if (is_drawn(event)) tracks[event.track].push_back(&event);
  std::vector<Row> rows;
  for (auto& [track, events] : tracks)
    rows.push_back({track, track.device.to_string() + " " + work_of(events), std::move(events)});
  const auto exchanges = [](const Row& row) { return !row.label.ends_with("work"); };
  std::ranges::sort(rows, {}, [&](const Row& row) {
    return std::tuple(row.track.device, exchanges(row), row.track.kind, row.track.id);
  });
  std::map<std::string, int> count;
  for (Row& row : rows)
    if (const int number = ++count[row.label]; number > 1) row.label += " " + std::to_string(number);
  return rows;
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

// The distance of the marks of an axis of this length: 1, 2, 2.5 or 5 times a power of ten, at most 5 of them.
double distance_of_marks(double length) {
  const double least = length / 5;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

std::string key_of(const std::vector<Row>& rows) {
  std::string style = "<style>";
  std::string key = "<p class=\"key\">";
  for (const Group* const group : groups) {
    const auto is_of_group = [&](const Event* event) { return &group_of(*event) == group; };
    if (std::ranges::none_of(rows, [&](const Row& row) { return std::ranges::any_of(row.events, is_of_group); }))
      continue;
    append(style, " .%s { fill: %s; background: %s; }", group->name, group->colour, group->colour);
    append(key, "<span><i class=\"%s\"></i>%s</span>\n", group->name, group->text);
  }
  return style + " </style>\n" + key + "</p>\n";
}

}  // namespace

std::string time_line(const cox::trace::Recording& recording, std::chrono::duration<double> step) {
  const std::vector<Row> rows = rows_of(recording);
  if (rows.empty()) return {};
  double length = 1e3 * step.count();  // of the axis, in milliseconds
  for (const Row& row : rows)
    for (const Event* const event : row.events) length = std::max(length, static_cast<double>(event->end) / 1e6);
  const double scale = (width - label_width - right_margin) / length;
  const double bottom = row_height * static_cast<double>(rows.size());

  std::string html = key_of(rows);
  append(
      html,
      "<div class=\"scrolled\">\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"time line of one step\">\n",
      width, bottom + 24);
  const double distance = distance_of_marks(length);
  for (int mark = 0; mark * distance <= length; ++mark) {
    const double x = label_width + scale * mark * distance;
    append(html, "<line x1=\"%.2f\" y1=\"0\" x2=\"%.2f\" y2=\"%.0f\"/>", x, x, bottom + 4);
    append(html, "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\">%g ms</text>\n", x, bottom + 18, mark * distance);
  }
  double top = 0;
  for (const Row& row : rows) {
    append(html, "<g>\n<text x=\"0\" y=\"%.0f\">%s</text>\n", top + 17, row.label.c_str());
    for (const Event* const event : row.events) {
      const double duration = static_cast<double>(event->end - event->begin) / 1e6;
      append(html, "<rect class=\"%s\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%.0f\"><title>",
             group_of(*event).name, label_width + scale * static_cast<double>(event->begin) / 1e6, top + 2,
             std::max(least_width, scale * duration), row_height - 4);
      html += escaped(event->name);
      append(html, ": %.3f ms</title></rect>\n", duration);
    }
    html += "</g>\n";
    top += row_height;
  }
  return html + "</svg>\n</div>\n";
}

}  // namespace train
