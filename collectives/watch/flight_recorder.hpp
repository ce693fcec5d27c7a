#pragma once

#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cox {

/// The last operations of one communicator, per rank: the request, its call site, its state, and the times of its state
/// changes. Any thread. Calls block at most for a short lock, of which each rank has its own. The calls that record do
/// not allocate.
class FlightRecorder {
 public:
  using Time = std::chrono::system_clock::time_point;

  /// Scheduled, Started and Completed are PyTorch's states. Started: all ranks have submitted the operation, and it was
  /// enqueued on the device. A GPU may still be executing earlier work of its stream.
  enum class State : std::uint8_t { Scheduled, Started, Completed, Failed, TimedOut };
  static constexpr std::array<std::string_view, 5> state_names{"scheduled", "started", "completed", "failed",
                                                               "timed_out"};

  [[nodiscard]] static Time clock() { return std::chrono::system_clock::now(); }

  /// Keeps `capacity` operations, at least one. `name` is the communicator's name in the dump.
  FlightRecorder(std::string name, CommunicationId devices, std::size_t capacity, std::chrono::milliseconds timeout);

  /// `rank` has submitted operation `sequence`, counted from 1. Of a group, the first request and the size are kept.
  void submitted(std::uint64_t sequence, std::size_t rank, const CollectiveRequests& requests,
                 Time now = clock()) noexcept;
  /// All ranks have submitted the operation: the rank's launch was put into its device's launch queue.
  void released(std::uint64_t sequence, std::size_t rank, Time now = clock()) noexcept;
  void started(std::uint64_t sequence, std::size_t rank, Time now = clock()) noexcept;
  void completed(std::uint64_t sequence, std::size_t rank, Time now = clock()) noexcept {
    completed(std::span(&sequence, 1), rank, now);
  }
  void completed(std::span<const std::uint64_t> sequences, std::size_t rank, Time now = clock()) noexcept;
  /// The state becomes TimedOut if `error` is a CollectiveError Timeout, else Failed.
  void failed(std::uint64_t sequence, std::size_t rank, const std::exception_ptr& error, Time now = clock()) noexcept;

  /// {"version", "pg_config", "pg_status", "entries": [...]}. Entries are sorted by operation, oldest first, then by
  /// rank. Field names are those of PyTorch's flight recorder where the meaning is the same. Fields that PyTorch does
  /// not have: "rank", "device", "stream", "group_size", "reduce_operation", "root" (of a send or a receive: the other
  /// rank), "time_released_ns", "error". Times are nanoseconds since 1970; null if it has not happened yet.
  [[nodiscard]] std::string to_json() const;

 private:
  struct Entry {
    std::uint64_t sequence = 0;  // 0: none
    CollectiveRequest request{};
    std::size_t group_size = 0;
    State state = State::Scheduled;
    Time submitted{};
    Time started{};
    Time ended{};
    std::exception_ptr error = nullptr;
  };
  // On cache lines of its own, because device threads write here all the time.
  struct alignas(64) Rank {
    mutable detail::AdaptiveMutex mutex;
    std::vector<Entry> ring;  // operation n is in slot n % size, until a later one overwrites it
    // The times of release, in the same slots, as a count of Time's ticks; 0: not released. Not guarded by the lock:
    // the thread that releases an operation writes the times of all ranks.
    std::vector<std::atomic<Time::rep>> released;
    std::uint64_t last_submitted = 0;  // 0: none
    std::uint64_t last_started = 0;
    std::uint64_t last_completed = 0;

    Entry* find(std::uint64_t sequence) noexcept;
  };
  struct RankEntry {
    std::size_t rank;
    Time released;
    Entry entry;
  };
  struct Status {
    std::uint64_t last_submitted = 0;
    std::uint64_t last_started = 0;
    std::uint64_t last_completed = 0;
    std::vector<RankEntry> entries{};
  };

  [[nodiscard]] Status status() const;
  void append(std::string& json, const RankEntry& of) const;

  const std::string name_;
  const CommunicationId devices_;
  const std::size_t capacity_;
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<Rank[]> ranks_;
};

[[nodiscard]] constexpr std::string_view to_string(FlightRecorder::State state) noexcept {
  return FlightRecorder::state_names[static_cast<std::size_t>(state)];
}
static_assert(FlightRecorder::state_names.size() == static_cast<std::size_t>(FlightRecorder::State::TimedOut) + 1);

}  // namespace cox
