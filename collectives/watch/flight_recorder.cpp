#include <coxswain/collectives/watch/flight_recorder.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/telemetry/json_text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace cox {
namespace {

using detail::json_text;

std::string time_or_null(FlightRecorder::Time time) {
  if (time == FlightRecorder::Time{}) return "null";
  return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

// PyTorch writes -1 for "none yet".
std::string number_or_none(std::uint64_t sequence) { return sequence == 0 ? "-1" : std::to_string(sequence); }

FlightRecorder::State state_after(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveError& collective) {
    return collective.kind() == CollectiveError::Kind::Timeout ? FlightRecorder::State::TimedOut
                                                               : FlightRecorder::State::Failed;
  } catch (...) {
    return FlightRecorder::State::Failed;
  }
}

std::string buffer_sizes(const CollectiveRequest& request, bool of_all_size, std::size_t world_size) {
  if (!facts_of(request.operation).has_elements) return "[]";
  return fmt::format("[[{}]]", of_all_size ? request.count * world_size : request.count);
}

std::string arguments(const CollectiveRequest& request, std::size_t world_size) {
  const CollectiveOperationFacts& facts = facts_of(request.operation);
  const std::string types = facts.has_elements ? json_text(to_string(request.element_type)) : std::string();
  return fmt::format(
      R"("input_sizes":{},"input_dtypes":[{}],"output_sizes":{},"output_dtypes":[{}],"reduce_operation":{},"root":{})",
      buffer_sizes(request, facts.input_of_all_size, world_size), types,
      buffer_sizes(request, facts.output_of_all_size, world_size), types,
      facts.reduces ? json_text(to_string(request.reduce_operation)) : "null",
      facts.rooted || is_transfer(request.operation) ? std::to_string(request.root) : "null");
}

}  // namespace

FlightRecorder::FlightRecorder(std::string name, CommunicationId devices, std::size_t capacity,
                               std::chrono::milliseconds timeout)
    : name_(std::move(name)),
      devices_(std::move(devices)),
      capacity_(std::max<std::size_t>(capacity, 1)),
      timeout_(timeout),
      ranks_(std::make_unique<Rank[]>(devices_.world_size())) {
  for (std::size_t rank = 0; rank < devices_.world_size(); ++rank) {
    ranks_[rank].ring.resize(capacity_);
    ranks_[rank].released = std::vector<std::atomic<Time::rep>>(capacity_);
  }
}

FlightRecorder::Entry* FlightRecorder::Rank::find(std::uint64_t sequence) noexcept {
  Entry& entry = ring[sequence % ring.size()];
  return entry.sequence == sequence ? &entry : nullptr;
}

void FlightRecorder::submitted(std::uint64_t sequence, std::size_t rank, const CollectiveRequests& requests,
                               Time now) noexcept {
  Rank& of = ranks_[rank];
  const std::lock_guard lock(of.mutex);
  of.last_submitted = sequence;
  of.released[sequence % of.ring.size()].store(0, std::memory_order_relaxed);
  of.ring[sequence % of.ring.size()] = {
      .sequence = sequence, .request = requests.front(), .group_size = requests.size(), .submitted = now};
}

void FlightRecorder::released(std::uint64_t sequence, std::size_t rank, Time now) noexcept {
  Rank& of = ranks_[rank];
  of.released[sequence % of.released.size()].store(now.time_since_epoch().count(), std::memory_order_relaxed);
}

void FlightRecorder::started(std::uint64_t sequence, std::size_t rank, Time now) noexcept {
  Rank& of = ranks_[rank];
  const std::lock_guard lock(of.mutex);
  of.last_started = std::max(of.last_started, sequence);
  Entry* entry = of.find(sequence);
  if (entry == nullptr) return;
  entry->started = now;
  if (entry->state == State::Scheduled) entry->state = State::Started;
}

void FlightRecorder::completed(std::span<const std::uint64_t> sequences, std::size_t rank, Time now) noexcept {
  Rank& of = ranks_[rank];
  const std::lock_guard lock(of.mutex);
  for (const std::uint64_t sequence : sequences) {
    of.last_completed = std::max(of.last_completed, sequence);
    Entry* entry = of.find(sequence);
    if (entry == nullptr) continue;
    entry->ended = now;
    entry->state = State::Completed;
  }
}

void FlightRecorder::failed(std::uint64_t sequence, std::size_t rank, const std::exception_ptr& error,
                            Time now) noexcept {
  const State state = state_after(error);
  Rank& of = ranks_[rank];
  const std::lock_guard lock(of.mutex);
  Entry* entry = of.find(sequence);
  if (entry == nullptr) return;
  entry->ended = now;
  entry->state = state;
  entry->error = error;
}

// The last operations of the communicator. Entries of a slow rank that are older than those that the other ranks keep
// are left out.
FlightRecorder::Status FlightRecorder::status() const {
  Status status;
  for (std::size_t rank = 0; rank < devices_.world_size(); ++rank) {
    const Rank& of = ranks_[rank];
    const std::lock_guard lock(of.mutex);
    status.last_submitted = std::max(status.last_submitted, of.last_submitted);
    status.last_started = std::max(status.last_started, of.last_started);
    status.last_completed = std::max(status.last_completed, of.last_completed);
    for (std::size_t place = 0; place < capacity_; ++place) {
      const Time released{Time::duration(of.released[place].load(std::memory_order_relaxed))};
      if (of.ring[place].sequence != 0) status.entries.push_back({rank, released, of.ring[place]});
    }
  }
  std::erase_if(status.entries,
                [&](const RankEntry& of) { return of.entry.sequence + capacity_ <= status.last_submitted; });
  std::ranges::sort(status.entries, {}, [](const RankEntry& of) { return std::pair(of.entry.sequence, of.rank); });
  return status;
}

std::string FlightRecorder::to_json() const {
  const Status all = status();
  std::string ranks;
  for (std::size_t rank = 0; rank < devices_.world_size(); ++rank)
    ranks += (rank == 0 ? "" : ", ") + std::to_string(rank);
  const std::string name = json_text(name_);
  std::string json = fmt::format(R"({{"version":"2.4","pg_config":{{{}:{{"name":{},"desc":{},"ranks":"[{}]"}}}},)",
                                 name, name, json_text(devices_.to_string()), ranks);
  json += fmt::format(
      R"("pg_status":{{{}:{{"last_enqueued_collective":{},"last_started_collective":{},"last_completed_collective":{}}}}},)",
      name, number_or_none(all.last_submitted), number_or_none(all.last_started), number_or_none(all.last_completed));
  json += "\"entries\":[";
  for (const RankEntry& of : all.entries) append(json, of);
  return json + "\n]}\n";
}

void FlightRecorder::append(std::string& json, const RankEntry& of) const {
  const auto& [rank, released, entry] = of;
  const CollectiveRequest& request = entry.request;
  const std::source_location& site = request.caller.site;
  const bool ended = entry.ended != Time{};
  json += json.back() == '[' ? "\n{" : ",\n{";
  json += fmt::format(
      R"("record_id":{},"pg_name":{},"process_group":[{},{}],"collective_seq_id":{},"op_id":{},"is_p2p":{},)",
      (entry.sequence - 1) * devices_.world_size() + rank + 1, json_text(name_), json_text(name_),
      json_text(devices_.to_string()), entry.sequence, entry.sequence, is_transfer(request.operation));
  json += fmt::format(R"("profiling_name":"cox:{}","rank":{},"device":{},"stream":{},"timeout_ms":{},)",
                      to_string(request.operation), rank, json_text(devices_.devices()[rank].to_string()),
                      request.caller.stream.number(), timeout_.count());
  json += fmt::format(R"("group_size":{},)", entry.group_size) + arguments(request, devices_.world_size());
  json += fmt::format(R"(,"frames":[{{"name":{},"filename":{},"line":{}}}],)", json_text(site.function_name()),
                      json_text(site.file_name()), site.line());
  json += fmt::format(R"("state":"{}","retired":{},"error":{},)", to_string(entry.state), ended,
                      entry.error ? json_text(describe(entry.error)) : "null");
  json += fmt::format(R"("time_created_ns":{},"time_released_ns":{},)", time_or_null(entry.submitted),
                      time_or_null(released));
  json += fmt::format(R"("time_discovered_started_ns":{},"time_discovered_completed_ns":{}}})",
                      time_or_null(entry.started), time_or_null(entry.ended));
}

}  // namespace cox
