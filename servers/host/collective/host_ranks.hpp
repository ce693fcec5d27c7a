#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/collectives/sequencer/collective_dependency_tracker.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/servers/host/collective/host_rank.hpp>
#include <coxswain/servers/host/stream/host_streams.hpp>
#include <coxswain/servers/host/stream/host_threads.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace cox::detail {

/// The ranks of a host device in all communicators that it has used. Device thread only.
class HostRanks {
 public:
  HostRanks(DeviceId device, HostStreams& streams, HostThreads& threads, std::size_t thread_count) noexcept
      : device_(device), streams_(streams), threads_(threads), thread_count_(thread_count) {}
  HostRanks(const HostRanks&) = delete;
  HostRanks& operator=(const HostRanks&) = delete;

  /// Finds or creates the rank for an operation: that of the operations of all ranks, or of the transfers in one
  /// direction between two devices. Throws CollectiveError Aborted (the communicator is closed), std::bad_alloc.
  [[nodiscard]] HostRank& find_or_create(const std::shared_ptr<Communicator>& communicator,
                                         const CollectiveRequest& request);
  /// The operations in `awaited`, as ids of the sequencer. Throws std::bad_alloc.
  [[nodiscard]] CollectiveDependencies dependencies(const CollectiveDependencyTracker& awaited) const;
  /// The positions where the submitted operations end, without those that have completed. Throws std::bad_alloc.
  [[nodiscard]] StreamPositions last_positions() const;
  /// The device submits no more operations. `generation`: of its server. Blocks until all submitted operations have
  /// ended. An operation with missing ranks waits for them for at most `patience`: a rank whose device is shutting
  /// down, or was shut down, is known not to arrive.
  void leave(std::uint64_t generation) noexcept;

 private:
  static constexpr std::chrono::seconds patience{2};

  [[nodiscard]] const std::shared_ptr<const HostStreamList>& communication_streams();
  void reap();

  const DeviceId device_;
  HostStreams& streams_;
  HostThreads& threads_;
  const std::size_t thread_count_;
  std::shared_ptr<const HostStreamList> communication_streams_;  // created by the first operation
  std::map<CommunicatorNumber, std::shared_ptr<HostRank>> ranks_;
};

}  // namespace cox::detail
