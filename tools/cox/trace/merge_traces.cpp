#include <coxswain/tools/cox/trace/merge_traces.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

namespace cox::tools {
namespace {

using nlohmann::json;

constexpr std::int64_t rows_of_process = 1000;  // devices and client threads of a process have fewer numbers
constexpr std::uint64_t arrows_of_process = std::uint64_t{1} << 32U;

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw std::runtime_error("'" + file + "' " + what);
}

template <class Number>
std::optional<Number> number_of(const json& data, const char* name) {
  const auto found = data.find(name);
  if (found == data.end() || !found->is_string()) return std::nullopt;
  const auto& text = found->get_ref<const std::string&>();
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// A trace, and its process as its header describes it.
struct Part {
  std::uint64_t process;
  std::string name;                          // "process 1 (node7, pid 4711)"
  std::int64_t started;                      // on the leader's clock, in nanoseconds
  std::optional<std::uint64_t> clock_error;  // in nanoseconds; not measured
  json events;
};

Part part_of(ProcessTrace trace) {
  if (!trace.json.is_object() || !trace.json.contains("traceEvents") || !trace.json["traceEvents"].is_array())
    fail(trace.file, "is no trace of this library");
  const json data = trace.json.value("otherData", json::object());
  const auto process = number_of<std::uint64_t>(data, "process");
  const auto started = number_of<std::int64_t>(data, "started_ns");
  const auto offset = number_of<std::int64_t>(data, "clock_offset_ns");
  if (!process || !started || !offset) fail(trace.file, "was not written by a process of a world of several");
  return {.process = *process,
          .name = "process " + std::to_string(*process) + " (" + data.value("host", std::string("?")) + ", pid " +
                  data.value("pid", std::string("?")) + ")",
          .started = *started + *offset,
          .clock_error = number_of<std::uint64_t>(data, "clock_error_ns"),
          .events = std::move(trace.json["traceEvents"])};
}

// Moves an event to the rows of its process, and its time by `later` microseconds.
void move(json& event, const Part& part, double later) {
  const auto process = static_cast<std::int64_t>(part.process);
  if (event.contains("pid")) event["pid"] = event["pid"].get<std::int64_t>() + process * rows_of_process;
  if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + later;
  if (event.contains("id")) event["id"] = event["id"].get<std::uint64_t>() + part.process * arrows_of_process;
  if (!event.contains("args")) return;
  json& arguments = event["args"];
  if (event["name"] == "process_name")
    arguments["name"] = part.name + ": " + arguments["name"].get<std::string>();
  else if (event["name"] == "process_sort_index")
    arguments["sort_index"] = arguments["sort_index"].get<std::int64_t>() + process * rows_of_process;
}

}  // namespace

json merge_traces(std::vector<ProcessTrace> traces) {
  std::map<std::uint64_t, std::pair<std::string, Part>> parts;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::optional<std::uint64_t> error = 0;
  for (ProcessTrace& trace : traces) {
    const std::string file = trace.file;
    Part part = part_of(std::move(trace));
    first = std::min(first, part.started);
    error = error && part.clock_error ? std::optional(std::max(*error, *part.clock_error)) : std::nullopt;
    const auto process = part.process;
    const auto [at, is_new] = parts.try_emplace(process, file, std::move(part));
    if (!is_new) fail(file, "is of the same process as '" + at->second.first + "'");
  }
  json merged{{"displayTimeUnit", "ns"}, {"otherData", json::object()}, {"traceEvents", json::array()}};
  if (error) merged["otherData"]["clock_error_ns"] = std::to_string(*error);
  for (auto& [process, named] : parts) {
    auto& [file, part] = named;
    const double later = static_cast<double>(part.started - first) / 1000.0;
    try {
      for (json& event : part.events) {
        move(event, part, later);
        merged["traceEvents"].push_back(std::move(event));
      }
    } catch (const json::exception& malformed) {
      fail(file, std::string("is no trace of this library: ") + malformed.what());
    }
  }
  return merged;
}

}  // namespace cox::tools
