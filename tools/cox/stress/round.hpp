#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/collective_operation.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/tools/cox/stress/fault.hpp>
#include <coxswain/tools/cox/stress/operation.hpp>
#include <coxswain/tools/cox/stress/ticket.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cox::stress {

struct RoundLine;

/// One operation that the ranks of a communicator do together. It determines the content of all its buffers.
struct RoundPart {
  CollectiveOperation operation = CollectiveOperation::AllReduce;  ///< Send: rank 0 sends, rank 1 receives.
  ElementType type = ElementType::U32;
  ReduceOperation reduce = ReduceOperation::Sum;
  std::size_t root = 0;   ///< Rank.
  std::size_t count = 1;  ///< Elements of the smaller of a rank's buffers.
  std::uint64_t seed = 0;
  /// A reduction of floats that are no whole numbers: its result depends on the order in which it is computed.
  bool rounded = false;

  friend bool operator==(const RoundPart&, const RoundPart&) = default;
};

/// The state of one rank's call. Written by the thread that makes the call, then by the one that checks.
struct RoundRank {
  std::vector<std::optional<CopyDescriptor>> results;  ///< By part; empty if the rank has none or has dropped it.
  StreamId stream;                                     ///< On which the call was made.
  bool exclusive = false;                              ///< The stream has no other call in flight.
  bool called = false;                                 ///< False: the call was left out.
  bool synced = false;                                 ///< The stream waits for all collectives of the device.
  bool overwritten = false;                            ///< Of a sender: its result is the data written over its source.
  std::exception_ptr refused;                          ///< The exception of the call itself.
  Future<std::vector<Bytes>> read;                     ///< Of the results, if it was requested.
  Future<std::vector<Bytes>> dependent;                ///< Of a copy of the first result by a kernel of another stream.
};

/// One operation of a communicator, or a group of them, from the first rank's call to the checked results. It consists
/// of one call of each rank; different threads make these calls at different times.
struct Round : std::enable_shared_from_this<Round> {
  using Clock = std::chrono::steady_clock;

  Operation operation = Operation::AllReduce;
  std::vector<RoundPart> parts;  ///< More than one: a group.
  RoundLine* line = nullptr;
  std::uint64_t number = 0;  ///< In its line, ascending.
  std::size_t bytes = 0;     ///< Approximate size of one rank's buffers.
  Ticket ticket;             ///< Of the client that began it.
  Ticket fault_ticket;       ///< Whose client and sequence an injected fault names: the same in all processes.
  std::optional<std::uint64_t> agenda_number;  ///< In a SharedRun.
  Fault fault = Fault::None;
  std::size_t faulty_rank = 0;            ///< Of Missing, Mismatch and Poison.
  Future<void> poisoning;                 ///< Of Poison: a sync after the operation that fails.
  std::shared_ptr<Round> missing_before;  ///< An earlier round of its line that lacks a rank: both time out.
  std::vector<RoundRank> ranks;
  Clock::time_point begun = Clock::now();

  /// Calls that have yet to be made. Acquire and release: the thread that decrements it to 0 sees the writes of all
  /// calls.
  std::atomic<std::size_t> calls_left{0};
  /// The timeout was reported and checked. The release in check_round pairs with the acquire in RoundBook::is_callable.
  std::atomic<bool> timed_out{false};
  /// A device of its communicator was shut down while the round was open. Release pairs with the acquire of the check.
  std::atomic<bool> shaken{false};
  /// The cause, if a rank has aborted the communicator while the round was open; the first cause counts. Release pairs
  /// with the acquire of the check.
  std::atomic<const std::string*> abort_cause{nullptr};
  /// When the first call began, and when the call of each rank reached its device; in ticks of the clock, 0: not yet.
  /// Relaxed: only times.
  std::atomic<Clock::rep> first_call{0};
  std::vector<std::atomic<Clock::rep>> arrivals;

  /// Whether this is a vote of the agenda.
  bool vote = false;
  bool wants_stop = false;  ///< The vote of this process.

  explicit Round(std::size_t world_size) : ranks(world_size), arrivals(world_size) {}

  [[nodiscard]] std::size_t world_size() const noexcept { return ranks.size(); }
  /// From the first call to the last arrival, or until now.
  [[nodiscard]] Clock::duration span() const noexcept {
    const Clock::rep first = first_call.load(std::memory_order_relaxed);
    if (first == 0) return {};
    Clock::rep last = first;
    for (const auto& arrival : arrivals) {
      const Clock::rep time = arrival.load(std::memory_order_relaxed);
      last = std::max(last, time == 0 ? Clock::now().time_since_epoch().count() : time);
    }
    return Clock::duration(last - first);
  }
};

}  // namespace cox::stress
