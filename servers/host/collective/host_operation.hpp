#pragma once

#include <coxswain/collectives/reduction/in_process_collective.hpp>
#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/servers/host/collective/remote_ranks.hpp>
#include <coxswain/servers/host/stream/timeline.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cox::detail {

/// One operation of host devices, or a group of them, which all its ranks share. Each rank arrives. When all ranks have
/// arrived, their threads do the work, share by share. When all shares are done, each rank ends the operation. A place
/// is a rank's position in the operation: in a transfer 0 for the sender and 1 for the receiver, otherwise the rank.
///
/// Ranks of other processes arrive with their inputs (RemoteRanks). No share is executed before this process has sent
/// those of its own ranks, because the result may replace them.
///
/// All ranks have submitted the operation, but earlier work on their streams may take long. When the first rank has
/// arrived, the others have the communicator's timeout to arrive (L10). Then the operation is aborted, and all ranks
/// continue without the operation, also those that arrive later. While no rank has arrived, no rank waits and there is
/// no deadline: operations that are submitted far ahead may wait as long as the operations before them take.
class HostOperation final : public RemoteRanks::Owner, public std::enable_shared_from_this<HostOperation> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Creates an operation whose deadline is watched. Throws std::bad_alloc, std::system_error (no thread for the
  /// deadline).
  [[nodiscard]] static std::shared_ptr<HostOperation> make(CollectiveRequests requests,
                                                           std::vector<DeviceId> devices_in_order,
                                                           std::chrono::milliseconds timeout,
                                                           std::optional<SharedSequence> shared = std::nullopt);
  /// Does not watch the deadline: use make().
  HostOperation(CollectiveRequests requests, std::vector<DeviceId> devices_in_order, std::chrono::milliseconds timeout,
                std::optional<SharedSequence> shared = std::nullopt);
  HostOperation(const HostOperation&) = delete;
  HostOperation& operator=(const HostOperation&) = delete;
  ~HostOperation();

  [[nodiscard]] std::size_t ranks() const noexcept { return places_.size(); }
  /// Where `arrived` ends: one for each rank, and one for what is sent to other processes.
  [[nodiscard]] std::size_t arrivals() const noexcept { return places_.size() + (remote_ == nullptr ? 0 : 1); }
  [[nodiscard]] std::size_t shares() const noexcept { return shares_; }
  /// Sets the sequence number of the operation in its communicator. Each rank calls it before it arrives.
  void open(std::uint64_t sequence) noexcept;
  /// Sets the memory of a rank for each request. Call it before the rank arrives.
  void set_buffers(std::size_t place, const std::vector<RankBuffers>& buffers) noexcept;
  /// The stream of the rank has reached the operation. The first rank to arrive starts the deadline. With a `refusal`
  /// the rank cannot take part: no share is executed, and all ranks get refusal().
  void arrive(std::size_t place, const std::exception_ptr& refusal) noexcept override;
  /// After all ranks have arrived: executes shares until none is left to start. Any number of threads. For a small
  /// operation the last rank to arrive has already executed the only share.
  void run_shares() noexcept;
  /// Whether it is useful that more than one thread of each rank works on these requests.
  [[nodiscard]] static bool wants_helpers(const CollectiveRequests& requests) noexcept;
  /// Why the operation was aborted; null if it was not. Read it when `done` has reached shares().
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }
  /// Like failure(), but the communicator stays usable: a CollectiveError RankFailed for the first place that could not
  /// take part.
  [[nodiscard]] const std::exception_ptr& refusal() const noexcept { return refusal_; }

  Timeline arrived;  ///< reaches arrivals() when all ranks have arrived, or on abort
  Timeline done;     ///< reaches shares() when all shares are done, or none will be started

  /// When the operation is aborted if not all ranks have arrived. While no rank has arrived, it is always in the
  /// future, so that it is checked again. Time::max() when no rank is awaited any more.
  [[nodiscard]] Time deadline() const;
  /// If the deadline is `now` or earlier: aborts with a CollectiveError Timeout that names the ranks that did not
  /// arrive. Returns the next deadline. See DeadlineWatch.
  std::optional<Time> check_deadlines(Time now) noexcept;
  /// Ends the operation with that failure on all ranks. Does nothing if all ranks have arrived, or if it was aborted
  /// before.
  void abort(const std::exception_ptr& why) noexcept override;

  void set_input(std::size_t place, std::size_t request, const std::byte* input) noexcept override {
    buffers_[request * ranks() + place].source = input;
  }
  [[nodiscard]] bool has_arrived(std::size_t place) const noexcept override;
  void note_sent() noexcept override { count_arrival(std::nullopt, nullptr); }

 private:
  void count_arrival(std::optional<std::size_t> place, const std::exception_ptr& failed) noexcept;
  [[nodiscard]] std::exception_ptr overdue() const noexcept;
  [[nodiscard]] std::exception_ptr rank_failed(std::size_t place, const std::exception_ptr& refusal) const noexcept;
  [[nodiscard]] std::string overdue_text() const;

  const CollectiveRequests requests_;
  const std::vector<DeviceId> places_;
  const std::chrono::milliseconds timeout_;
  const std::size_t shares_;
  std::atomic<std::size_t> next_share_{0};
  std::unique_ptr<RemoteRanks> remote_;  // null if all ranks belong to this process
  std::vector<RankBuffers> buffers_;     // all places of the first request, then of the second, ...
  mutable std::mutex mutex_;
  Time deadline_;  // set when the first rank arrives; guarded by mutex_, like all members below
  std::uint64_t sequence_ = 0;
  std::vector<bool> has_arrived_;
  std::size_t missing_;            // of arrivals()
  std::size_t own_missing_;        // of the ranks of this process
  std::exception_ptr failure_;     // written before `arrived` reaches ranks(), read after
  std::exception_ptr refusal_;     // like failure_
  std::size_t refused_place_ = 0;  // the place that refusal_ comes from
};

}  // namespace cox::detail
