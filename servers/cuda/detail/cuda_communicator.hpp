#pragma once

#include <coxswain/collectives/collective_arrival.hpp>
#include <coxswain/collectives/communicator.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/memory/last_uses.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/detail/cuda_streams.hpp>
#include <coxswain/servers/cuda/detail/doorbell.hpp>
#include <coxswain/servers/cuda/detail/peer_copy.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace cox::detail {

/// What a rank has for an operation, or a group of them, and when it may begin.
struct CudaCollective {
  CollectiveRequests requests;
  std::vector<PeerRange> memory;  ///< of each request
  StreamPositions waits;          ///< what must be done before
  /// The same as events, if all of it has been issued.
  std::optional<std::vector<std::shared_ptr<CudaEvent>>> ready = std::nullopt;
  CollectiveDependencies after;  ///< the collectives among that, and before it
  std::exception_ptr failure;    ///< why the rank cannot take part
  bool told = false;             ///< somebody else than the stream is told what becomes of it
};

/// What the communicators of a device share: where their operations are issued, and how they are told of their turns.
struct CudaCommunication {
  CudaStreams& streams;
  std::shared_ptr<Doorbell> doorbell;
  std::shared_ptr<CudaStream> stream;  ///< for copies to other devices
};

/// One rank of a communicator on GPUs: what NCCL calls an ncclComm_t. Its operations are issued when the sequencer says
/// that it is their turn: the order is the same on all devices. What has ended is counted like the work of a stream, on
/// a slot of its own, so that buffers remember collectives as they do kernels, and streams wait for them alike. Device
/// thread only.
class CudaCommunicator : public Communicator {
 public:
  /// The rest as Communicator.
  CudaCommunicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number, CommunicationId devices,
                   DeviceId device, StreamSlot slot, std::shared_ptr<const CudaCommunication> communication);

  /// Asks for it on behalf of a stream, whose errors get what becomes of it. Returns where its end will be. Throws as
  /// Sequencer::submit, and std::bad_alloc; then nothing was asked for.
  StreamPosition submit(CudaCollective collective, CudaStream& on);

  /// The operation whose end is at that position.
  [[nodiscard]] CollectiveDependency operation_at(std::uint64_t position) const noexcept {
    return {number(), position - begin_};
  }
  /// Where the last operation ends that was asked for.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, last_}; }
  /// All that was asked for has been issued, or refused.
  [[nodiscard]] bool issued() const noexcept { return communication_->streams.timeline(slot_).issued() >= last_; }
  /// Nothing is under way, and nothing more will be.
  [[nodiscard]] bool over() const { return communication_->streams.completed(slot_) >= last_ && broken(); }

 private:
  struct Part;

  [[nodiscard]] std::shared_ptr<Part> make_part(CudaCollective& collective, CudaStream& on) const;
  [[nodiscard]] static CollectiveLaunch launch_of(std::shared_ptr<Part> part);

  const StreamSlot slot_;
  const std::shared_ptr<const CudaCommunication> communication_;
  const std::uint64_t begin_;  // operation n ends at begin_ + n
  std::uint64_t last_;
};

}  // namespace cox::detail
