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

/// The ranks that a host device is. Device thread only.
class HostCommunicators {
 public:
  HostCommunicators(DeviceId device, HostStreams& streams, HostThreads& threads, std::size_t thread_count) noexcept
      : device_(device), streams_(streams), threads_(threads), thread_count_(thread_count) {}
  HostCommunicators(const HostCommunicators&) = delete;
  HostCommunicators& operator=(const HostCommunicators&) = delete;

  /// The rank that an operation is for: a transfer has other ranks than what all do together. Throws CollectiveError
  /// Aborted (the group is closed), std::bad_alloc.
  [[nodiscard]] HostCommunicator& find_or_create(const std::shared_ptr<CommunicationGroup>& group,
                                                 const CollectiveRequest& request);
  /// The operations that are awaited, as the sequencer knows them. Throws std::bad_alloc.
  [[nodiscard]] CollectiveDependencies dependencies(const CollectiveDependencyTracker& awaited) const;
  /// Where all that was asked for so far ends. Throws std::bad_alloc.
  [[nodiscard]] StreamPositions last_positions() const;
  /// The device submits nothing any more. `generation`: of its server. Blocks until all that it has submitted has
  /// ended: what misses ranks waits for them at most `patience`, since one that is itself being shut down, or has been,
  /// is known not to come.
  void leave(std::uint64_t generation) noexcept;

 private:
  static constexpr std::chrono::seconds patience{2};

  [[nodiscard]] const std::shared_ptr<const HostStreamList>& communication();
  void reap();

  const DeviceId device_;
  HostStreams& streams_;
  HostThreads& threads_;
  const std::size_t thread_count_;
  std::shared_ptr<const HostStreamList> communication_;  // made by the first operation
  std::map<CommunicatorNumber, std::unique_ptr<HostCommunicator>> communicators_;
};

}  // namespace cox::detail
