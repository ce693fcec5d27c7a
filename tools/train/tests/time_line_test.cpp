// The time line of a report: groups of names, names of rows, the axis.
#include <report/time_line.hpp>
#include <require.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using cox::trace::Category;
using cox::trace::Event;
using cox::trace::Track;
using namespace std::chrono_literals;

constexpr std::uint64_t ms = 1'000'000;

Event event(const char* name, std::uint64_t stream, std::uint64_t begin, std::uint64_t end, std::uint16_t device = 0) {
  Event made;
  made.name = name;
  made.begin = begin * ms;
  made.end = end * ms;
  made.category = Category::Stream;
  made.track = {.kind = Track::Kind::Stream, .device = {.type = 0, .index = device}, .id = stream};
  return made;
}

std::string drawn(std::vector<Event> events, std::chrono::duration<double> step = 10ms) {
  return train::time_line({.events = std::move(events), .threads = {}}, step);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The groups by which names are coloured.
void test_groups() {
  const std::vector<std::pair<const char*, const char*>> groups{
      {"matrix_product", "product"},  {"matrix_product_float", "product"},
      {"gelu_backward", "backward"},  {"sum_chunks", "backward"},
      {"adam_w", "update"},           {"adam_w_rounded", "update"},
      {"clip_factor", "update"},      {"total", "update"},
      {"square_sum", "update"},       {"round_elements", "update"},
      {"replay", "replay"},           {"all_reduce", "exchange"},
      {"reduce_scatter", "exchange"}, {"recv", "exchange"},
      {"layer_norm_forward", "other"}};
  for (const auto& [name, group] : groups) {
    const std::string page = drawn({event(name, 1, 0, 1)});
    require(contains(page, std::string("<rect class=\"") + group),
            (std::string(name) + " is not of the group " + group).c_str());
    require(contains(page, std::string("<i class=\"") + group), (std::string("the key has no ") + group).c_str());
    require(page.find("<i class") == page.rfind("<i class"), "the key has groups that are not drawn");
  }
}

void test_rows() {
  const std::string page =
      drawn({event("add", 3, 0, 1), event("send", 4, 1, 2), event("all_reduce", 1, 1, 2), event("all_gather", 2, 1, 2),
             event("sync", 5, 1, 2), event("end of a replay", 5, 1, 2), event("add", 7, 0, 1, 1)});
  for (const char* const label :
       {">host:0 work<", ">host:0 transfers<", ">host:0 collectives<", ">host:0 collectives 2<", ">host:1 work<"})
    require(contains(page, label), (std::string("there is no row ") + label).c_str());
  std::size_t rows = 0;
  for (std::size_t at = page.find("<g>"); at != std::string::npos; at = page.find("<g>", at + 1)) ++rows;
  require(rows == 5, "a row of points is drawn");
  require(drawn({event("sync", 1, 0, 1)}).empty(), "a drawing of nothing");
}

// It begins with the step, and has the whole step and all events.
void test_axis() {
  const std::string page = drawn({event("add", 1, 5, 6)});
  require(contains(page, ">0 ms<") && contains(page, ">2 ms<") && contains(page, ">10 ms<"), "marks of 10 ms");
  require(contains(page, "<rect class=\"other\" x=\"585.00\""), "an event in the middle of the step");
  require(contains(drawn({event("add", 1, 5, 60)}), ">60 ms<"), "the axis ends before the last event");
  require(contains(drawn({event("add", 1, 5, 6)}, 80us), ">6 ms<"), "the axis ends before the last event");
}

}  // namespace

int main() {
  test_groups();
  test_rows();
  test_axis();
}
