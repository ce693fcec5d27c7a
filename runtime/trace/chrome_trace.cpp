#include <coxswain/runtime/trace/chrome_trace.hpp>

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/telemetry/json_text.hpp>
#include <coxswain/runtime/telemetry/world_member.hpp>
#include <coxswain/runtime/trace/timeline_row.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cox::trace {
namespace {

using cox::detail::json_text;
using detail::Slice;

constexpr std::uint32_t clients_process = 1;
constexpr std::size_t flush_at = 1U << 20U;  // bytes

// A row of the timeline, with the process and thread numbers that the format requires.
struct Row {
  std::uint32_t process = 0;
  std::uint32_t thread = 0;
  std::vector<Slice> slices;
};

// Text of a time in microseconds, the unit of the format.
std::string in_us(std::uint64_t nanoseconds) { return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000); }

class ChromeTraceWriter {
 public:
  ChromeTraceWriter(std::ostream& out, const Recording& recording) : out_(out), recording_(recording) {}

  void write() {
    sort_into_rows();
    text_ = fmt::format(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"events\":\"{}\",\"dropped\":\"{}\",\"started_ns\":\"{}\"{}}},"
        "\"traceEvents\":[",
        recording_.events.size(), recording_.dropped, recording_.started, place_in_world());
    for (const auto& [device, process] : processes_) name_process(process, "device " + device.to_string());
    if (std::ranges::any_of(rows_, [](const auto& row) { return row.second.process == clients_process; })) {
      name_process(clients_process, "client threads");
    }
    for (auto& [track, row] : rows_) write_row(track, row);
    write_queues();
    text_ += "\n]}\n";
    flush();
  }

 private:
  // For `cox trace`, which merges the files of several processes.
  static std::string place_in_world() {
    const auto member = world_member();
    if (!member) return {};
    return fmt::format(
        ",\"process\":\"{}\",\"processes\":\"{}\",\"host\":{},\"pid\":\"{}\",\"clock_offset_ns\":\"{}\"{}",
        member->process, member->processes, json_text(member->host), ::getpid(), member->clock_offset,
        member->clock_error ? fmt::format(",\"clock_error_ns\":\"{}\"", *member->clock_error) : std::string());
  }

  static bool has_origin(const Event& event) noexcept {
    return event.origin.time != 0 && event.origin.thread != 0 && event.origin.time <= event.begin;
  }

  void sort_into_rows() {
    for (const Event& event : recording_.events) {
      if (event.track.kind == Track::Kind::DeviceThread) {
        device_threads_.try_emplace(static_cast<std::uint32_t>(event.track.id), event.track);
      }
    }
    for (const Event& event : recording_.events) {
      row_of(event.track).slices.push_back({event.begin, event.end, &event, false});
      if (!has_origin(event)) continue;
      row_of(thread_track(event.origin.thread)).slices.push_back({event.origin.time, event.origin.time, &event, true});
    }
    for (auto& [track, row] : rows_) detail::arrange(row.slices);
  }

  // A device thread that hands work over is shown in the row of its tasks.
  Track thread_track(std::uint32_t thread) const {
    const auto device_thread = device_threads_.find(thread);
    return device_thread != device_threads_.end() ? device_thread->second : Track{.id = thread};
  }

  Row& row_of(Track track) {
    if (track.kind == Track::Kind::Thread) track = thread_track(static_cast<std::uint32_t>(track.id));
    const auto [found, added] = rows_.try_emplace(track);
    Row& row = found->second;
    if (added) {
      row.process = process_of(track);
      row.thread = static_cast<std::uint32_t>(rows_.size());
    }
    return row;
  }

  std::uint32_t process_of(const Track& track) {
    if (track.kind == Track::Kind::Thread) return clients_process;
    const auto next = clients_process + 1 + static_cast<std::uint32_t>(processes_.size());
    return processes_.try_emplace(track.device, next).first->second;
  }

  std::string name_of(const Track& track) const {
    const auto thread = recording_.threads.find(static_cast<std::uint32_t>(track.id));
    switch (track.kind) {
      case Track::Kind::Thread:
        return (thread != recording_.threads.end() ? thread->second : "client") + " " + std::to_string(track.id);
      case Track::Kind::DeviceThread:
        return track.stage == Stage::Upstream ? "upstream device thread" : "device thread";
      case Track::Kind::Stream: return "stream " + std::to_string(track.id);
      case Track::Kind::Communicator: return "communicator " + std::to_string(track.id);
    }
    return {};
  }

  // Writes one object of the array; `fields` formats all members after "ph" and "pid".
  template <class... Values>
  void entry(char phase, std::uint32_t process, fmt::format_string<Values...> fields, Values&&... values) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), "{{\"ph\":\"{}\",\"pid\":{},", phase, process);
    fmt::format_to(std::back_inserter(text_), fields, std::forward<Values>(values)...);
    text_ += '}';
    if (text_.size() >= flush_at) flush();
  }

  void flush() {
    out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
    text_.clear();
  }

  void name_process(std::uint32_t process, const std::string& name) {
    entry('M', process, "\"name\":\"process_name\",\"args\":{{\"name\":{}}}", json_text(name));
    entry('M', process, "\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{}}}", process);
  }

  void write_row(const Track& track, const Row& row) {
    entry('M', row.process, "\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}", row.thread,
          json_text(name_of(track)));
    entry('M', row.process, "\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{}}}", row.thread,
          static_cast<unsigned>(track.kind) * 100'000 + row.thread);
    for (const Slice& slice : row.slices) write_slice(row, slice);
  }

  void write_slice(const Row& row, const Slice& slice) {
    const Event& event = *slice.event;
    const auto length = slice.end - slice.begin;
    entry('X', row.process, "\"tid\":{},\"ts\":{},\"dur\":{},\"name\":{},\"cat\":\"{}\",\"args\":{{{}}}", row.thread,
          in_us(slice.begin), in_us(length), json_text(event.name),
          slice.handed_over ? "submit" : to_string(event.category),
          slice.handed_over ? std::string() : arguments(event));
    if (!has_origin(event)) return;
    // The two ends of an arrow share an id: the index of the event.
    const auto number = &event - recording_.events.data();
    entry(slice.handed_over ? 's' : 'f', row.process,
          "\"tid\":{},\"ts\":{},\"id\":{},\"name\":\"submit\",\"cat\":\"flow\"{}", row.thread, in_us(slice.begin),
          number, slice.handed_over ? "" : ",\"bp\":\"e\"");
  }

  static std::string arguments(const Event& event) {
    std::string text;
    const auto add = [&text](const char* name, const std::string& json) {
      text += (text.empty() ? "" : ",") + json_text(name) + ":" + json;
    };
    if (has_origin(event)) add("wait_us", in_us(event.begin - event.origin.time));
    if (event.category == Category::Task) add("stream", std::to_string(event.stream.number()));
    if (event.outcome != Outcome::Completed) add("outcome", json_text(to_string(event.outcome)));
    if (event.file != nullptr) add("site", json_text(std::string(event.file) + ":" + std::to_string(event.line)));
    for (const Argument& argument : event.arguments) {
      if (argument.name != nullptr) add(argument.name, std::to_string(argument.value));
    }
    return text;
  }

  // Writes how many tasks wait for each device thread, once for each time at which the number changes: simultaneous
  // changes are written as one.
  void write_queues() {
    std::map<Track, std::vector<std::pair<std::uint64_t, int>>> changes;
    for (const Event& event : recording_.events) {
      if (event.category != Category::Task || !has_origin(event)) continue;
      changes[event.track].emplace_back(event.origin.time, 1);
      changes[event.track].emplace_back(event.begin, -1);
    }
    for (auto& [track, steps] : changes) {
      std::ranges::sort(steps, {}, [](const auto& step) { return std::pair(step.first, -step.second); });
      const char* const name = track.stage == Stage::Upstream ? "queued upstream" : "queued";
      std::int64_t queued = 0;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        queued += steps[i].second;
        if (i + 1 < steps.size() && steps[i + 1].first == steps[i].first) continue;
        entry('C', row_of(track).process, "\"name\":\"{}\",\"ts\":{},\"args\":{{\"tasks\":{}}}", name,
              in_us(steps[i].first), queued);
      }
    }
  }

  std::ostream& out_;
  const Recording& recording_;
  std::map<std::uint32_t, Track> device_threads_;
  std::map<DeviceId, std::uint32_t> processes_;
  std::map<Track, Row> rows_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

void write_chrome_trace(std::ostream& out, const Recording& recording) { ChromeTraceWriter(out, recording).write(); }

void write_chrome_trace(const std::filesystem::path& path, const Recording& recording) {
  std::ofstream file(path, std::ios::trunc);
  write_chrome_trace(file, recording);
  if (!file.flush()) throw Error("cannot write the trace file '" + path.string() + "'");
}

}  // namespace cox::trace
