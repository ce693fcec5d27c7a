#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/tools/cox/stress/ticket.hpp>
#include <coxswain/tools/cox/stress/violation_log.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::stress {

/// The ground truth of a run: what the clients have submitted, and what the devices have done with it.
///
/// Order (L1): a client says in each closure's Ticket what must have run before it, by its own calls and by those of
/// one other client, whose published progress it has read. The device checks it when the closure runs. Conservation
/// (L2): each closure carries a Canary, which counts its runs and checks its destruction.
class Truth {
 public:
  static constexpr std::size_t streams_per_client = 3;
  static constexpr std::size_t data_streams = 2;  ///< The first of them: for work on the client's own buffers.
  static constexpr std::size_t round_stream = 2;  ///< For collectives.

  /// One client's closures on one device.
  struct alignas(64) Lane {
    /// The latest that must run and whose call has returned. Written by the client; release pairs with the acquire of
    /// the clients that read it for their tickets, so that their calls happen after it.
    std::atomic<std::uint64_t> accepted{0};
    /// The latest that was destroyed after it ran. Relaxed: the device orders each reader after the write.
    std::atomic<std::uint64_t> destroyed{0};
    /// The latest that ran. Device thread.
    Sequence ran;
  };
  struct alignas(64) Device {
    DeviceId id;
    std::vector<Lane> lanes;                  // by client
    std::atomic<std::uint64_t> destroyed{0};  // canaries; relaxed: read at rest
    // Device thread:
    std::uint64_t runs = 0;  // through the auditor
    Ticket previous;         // the last of them
    Ticket thrown;           // whose exception the error sink has yet to receive
  };

  Truth(const std::vector<DeviceId>& devices, std::uint32_t clients);

  [[nodiscard]] Device& device(std::size_t index) noexcept { return devices_[index]; }
  [[nodiscard]] Lane& lane(std::size_t device, std::uint32_t client) noexcept { return devices_[device].lanes[client]; }
  [[nodiscard]] std::size_t devices() const noexcept { return devices_.size(); }
  [[nodiscard]] std::uint32_t clients() const noexcept { return static_cast<std::uint32_t>(streams_.size()); }

  /// The client's streams; the first is its thread's own. Set before the clients start.
  using Streams = std::array<StreamId, streams_per_client>;
  [[nodiscard]] Streams& streams(std::uint32_t client) noexcept { return streams_[client]; }

  [[nodiscard]] ViolationLog& violations() noexcept { return violations_; }
  /// Reports a violation by the closure with that ticket.
  void violated(Law law, const Ticket& ticket, std::string expected, std::string got);

 private:
  std::vector<Device> devices_;
  std::vector<Streams> streams_;
  ViolationLog violations_;
};

}  // namespace cox::stress
