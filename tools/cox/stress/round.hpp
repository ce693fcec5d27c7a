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

/// One operation that the ranks of a communicator do together. All that is in its buffers follows from it.
struct RoundPart {
  CollectiveOperation operation = CollectiveOperation::AllReduce;  ///< Send: rank 0 sends, rank 1 receives.
  ElementType type = ElementType::U32;
  ReduceOperation reduce = ReduceOperation::Sum;
  std::size_t root = 0;   ///< Rank.
  std::size_t count = 1;  ///< Elements of the smaller of a rank's buffers.
  std::uint64_t seed = 0;

  friend bool operator==(const RoundPart&, const RoundPart&) = default;
};

/// What one rank has made of its call. Written by the thread that makes the call, then by the one that checks.
struct RoundRank {
  std::vector<std::optional<CopyDescriptor>> results;  ///< By part; none where there is none, or it was dropped.
  StreamId stream;                                     ///< That the call was made on.
  bool exclusive = false;                              ///< The stream has no other call under way.
  bool called = false;                                 ///< Else the call was left out.
  bool synced = false;                                 ///< The stream waits for all collectives of the device.
  bool overwritten = false;                            ///< A sender: its result is what was written over its source.
  std::exception_ptr refused;                          ///< What the call itself threw.
  Future<std::vector<Bytes>> read;                     ///< Of the results, if they have been asked for.
  Future<std::vector<Bytes>> dependent;                ///< Of what a kernel of another stream makes of the first.
};

/// One operation of a communicator, or a group of them, from the first rank's call to the checked results. It belongs
/// to one call of each rank, which different threads make at different times.
struct Round : std::enable_shared_from_this<Round> {
  using Clock = std::chrono::steady_clock;

  Operation operation = Operation::AllReduce;
  std::vector<RoundPart> parts;  ///< More than one: a group.
  RoundLine* line = nullptr;
  std::uint64_t number = 0;  ///< In its line, ascending.
  std::size_t bytes = 0;     ///< Of one rank's buffers, about.
  Ticket ticket;             ///< Whose it is.
  Fault fault = Fault::None;
  std::size_t faulty_rank = 0;            ///< Of Missing, Mismatch and Poison.
  Future<void> poisoning;                 ///< Of Poison: a sync behind the kernel that fails.
  std::shared_ptr<Round> missing_before;  ///< The one before it in its line misses a rank, so it times out, too.
  std::vector<RoundRank> ranks;
  Clock::time_point begun = Clock::now();

  /// Calls that have yet to be made. Acquire and release: whoever makes it 0 sees what all ranks have made.
  std::atomic<std::size_t> calls_left{0};
  /// Somebody was told of the timeout. Release pairs with the acquire of the rank that waits for it.
  std::atomic<bool> timed_out{false};
  /// A device of it was shut down meanwhile.
  std::atomic<bool> shaken{false};
  /// A rank has aborted the communicator while the round was open: the cause, which is the first one. Release pairs
  /// with the acquire of the check.
  std::atomic<const std::string*> abort_cause{nullptr};
  /// When the first call began, and when each rank's had come to its device; in the clock's ticks, 0: not yet. Relaxed:
  /// times.
  std::atomic<Clock::rep> first_call{0};
  std::vector<std::atomic<Clock::rep>> arrivals;

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
