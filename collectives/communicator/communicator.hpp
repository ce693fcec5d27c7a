#pragma once

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// A communicator: a set of devices that do collective operations together, as its ranks share it. It has one sequence
/// of operations that all ranks do together, and one sequence of transfers for each direction between two devices. The
/// sequencer orders each sequence as a communicator of its own, with its own number. Any thread.
class Communicator {
 public:
  /// The sequencer must outlive it. An operation times out if not all ranks have submitted it `timeout` after the first
  /// one did, or if not all ranks' streams have reached it `timeout` after the first one did.
  Communicator(Sequencer& sequencer, CommunicationId devices, std::chrono::milliseconds timeout);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Calls close() without a cause.
  ~Communicator();

  [[nodiscard]] const CommunicationId& devices() const noexcept { return devices_; }
  [[nodiscard]] Sequencer& sequencer() const noexcept { return sequencer_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  /// Whether floating-point elements are reduced in the order of ranks: the setting collectives.reproducible when the
  /// communicator was made.
  [[nodiscard]] bool is_reproducible() const noexcept { return is_reproducible_; }
  /// The sequence of the operations that all ranks do together.
  [[nodiscard]] CommunicatorNumber number() const noexcept { return all_.number; }
  /// The sequence of the transfers from one device to another. The first call opens it. Its ranks are those of a
  /// CommunicationId of the two devices. Throws CollectiveError Validation (not a device of the communicator), Aborted
  /// (closed).
  [[nodiscard]] CommunicatorNumber transfers(DeviceId from, DeviceId to);
  /// The sequence of the creation of NCCL's communicators: see Sequencer::open_creation. The first call opens it.
  /// Throws CollectiveError Aborted (closed).
  [[nodiscard]] CommunicatorNumber creation();
  /// The sequence that an operation of `device` belongs to, and its devices: all, or the two of a transfer.
  /// ranks_of() throws what transfers() throws.
  struct Ranks {
    CommunicatorNumber number;
    CommunicationId devices;
  };
  [[nodiscard]] Ranks ranks_of(DeviceId device, const CollectiveRequest& request);
  /// Whether it accepts operations: no rank was missing, it was not aborted, and no device was shut down.
  [[nodiscard]] bool usable() const { return broken() == nullptr; }
  /// Why it is not usable(); nullptr if it is.
  [[nodiscard]] std::exception_ptr broken() const;
  /// Refuses operations that wait for ranks, and all later ones, with this cause, until the communicator is renewed.
  void abort(const std::exception_ptr& cause) noexcept;
  /// Aborts the communicator and closes its sequences, permanently. Idempotent.
  void close(const std::exception_ptr& cause) noexcept;
  /// Must be held while both halves of a transfer are submitted, because the n-th send on one device belongs to the
  /// n-th receive on the other. A thread that holds it must not wait for a device.
  [[nodiscard]] std::mutex& pairing() noexcept { return pairing_; }
  /// Throws CollectiveError Aborted, with the cause, if it has been closed.
  void require_open() const;

  /// Reports the failure of an operation. Each of its ranks calls this with the same `error`. The first call logs it
  /// and writes the flight recorders to the file of the setting collectives.dump_file; it blocks until that is done.
  void report_failure(const std::exception_ptr& error) noexcept;
  /// The flight recorders of all its sequences, as members of a JSON array.
  [[nodiscard]] std::string recorders_to_json() const;

 private:
  using Direction = std::pair<DeviceId, DeviceId>;
  /// What the sequencer knows as a communicator, with its recorder.
  struct OperationSequence {
    CommunicatorNumber number;
    std::shared_ptr<FlightRecorder> recorder;  // stays valid after the sequencer has closed it
  };

  template <class Open>
  [[nodiscard]] CommunicatorNumber find_or_open(const Direction& direction, const CommunicationId& devices,
                                                const Open& open);
  [[nodiscard]] OperationSequence with_recorder(CommunicatorNumber number, const CommunicationId& devices) const;
  /// Adds the new sequence. Returns false if there already is one for its direction, the communicator is closed, or
  /// aborted_ is no longer equal to `aborted`.
  [[nodiscard]] bool add(std::map<Direction, OperationSequence>& made, bool aborted) noexcept;
  /// Calls `f(sequence)` for each sequence, without the lock. Does not allocate.
  template <class F>
  void for_each_sequence(F&& f) const;
  /// Calls f(). An exception that it throws is reported with report_task_error().
  template <class F>
  void attempt(F&& f) const noexcept;

  Sequencer& sequencer_;
  const CommunicationId devices_;
  const std::chrono::milliseconds timeout_;
  const bool is_reproducible_;
  const OperationSequence all_;
  std::mutex pairing_;                   // locked before all other locks
  mutable detail::AdaptiveMutex mutex_;  // not held while the sequencer is called: it may call launches
  // Guarded by mutex_, as all below. That of the creation is the direction from the first device to itself.
  std::map<Direction, OperationSequence> transfers_;
  bool aborted_ = false;
  bool closed_ = false;
  std::exception_ptr cause_;     // why it was aborted or closed
  std::exception_ptr reported_;  // the last failure reported; all ranks report the same object
};

}  // namespace cox
