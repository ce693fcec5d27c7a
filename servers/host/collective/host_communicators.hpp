#pragma once

#include <coxswain/collectives/group/communication_group.hpp>
#include <coxswain/collectives/sequencer/collective_dependency_tracker.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/servers/host/collective/host_communicator.hpp>
#include <coxswain/servers/host/stream/host_streams.hpp>
#include <coxswain/servers/host/stream/host_threads.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace cox::detail {

/// The ranks of a host device in all communicators that it has used. Device thread only.
class HostCommunicators {
 public:
  HostCommunicators(DeviceId device, HostStreams& streams, HostThreads& threads, std::size_t thread_count) noexcept
      : device_(device), streams_(streams), threads_(threads), thread_count_(thread_count) {}
  HostCommunicators(const HostCommunicators&) = delete;
  HostCommunicators& operator=(const HostCommunicators&) = delete;

  /// Finds or creates the rank for an operation. The communicator of a transfer has only its two devices; other
  /// operations use the communicator of all devices of the group. Throws CollectiveError Aborted (the group is closed),
  /// std::bad_alloc.
  [[nodiscard]] HostCommunicator& find_or_create(const std::shared_ptr<CommunicationGroup>& group,
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

  [[nodiscard]] const std::shared_ptr<const HostStreamList>& communication();
  void reap();

  const DeviceId device_;
  HostStreams& streams_;
  HostThreads& threads_;
  const std::size_t thread_count_;
  std::shared_ptr<const HostStreamList> communication_;  // created by the first operation
  std::map<CommunicatorNumber, std::unique_ptr<HostCommunicator>> communicators_;
};

}  // namespace cox::detail
