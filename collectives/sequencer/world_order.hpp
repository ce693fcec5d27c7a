#pragma once

#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace cox {

/// The ranks of a transfer direction in their communicator.
struct TransferRanks {
  std::uint16_t from;
  std::uint16_t to;

  /// No transfer: the sequence whose only operation is the creation of NCCL's communicators, as all processes do it
  /// together.
  [[nodiscard]] static constexpr TransferRanks of_creation() noexcept { return {.from = 0xfffe, .to = 0xfffe}; }

  friend bool operator==(const TransferRanks&, const TransferRanks&) = default;
};

/// A communicator of several processes and its epoch: when it breaks, the processes open it again with the next one.
struct SharedCommunicator {
  CommunicationId devices;
  std::uint64_t epoch = 1;

  friend bool operator==(const SharedCommunicator&, const SharedCommunicator&) = default;
};

/// Names a sequence of operations in the same way in all processes: that of all ranks, of the transfers in one
/// direction between two ranks, or of the creation of NCCL's communicators.
struct SharedSequence {
  SharedCommunicator communicator;
  std::optional<TransferRanks> transfer = std::nullopt;  ///< nothing: of all ranks

  friend bool operator==(const SharedSequence&, const SharedSequence&) = default;
};

/// From which operation on a sequence is refused.
struct SharedSequenceEnd {
  std::optional<TransferRanks> transfer;
  std::uint64_t from;
};

/// Asks the leader of the world to release operations of several processes, in the order that all processes have
/// (L17). The sequencer calls it with its lock held, so that the calls have the order of its decisions; it must not
/// block, and answers later, on a thread of its own: see Sequencer::release, refuse and end. If a call cannot be passed
/// on, it must call Sequencer::lose_world.
class WorldOrder {
 public:
  /// `number` stands for this sequence in later calls. An operation is overdue if it is not released `timeout` after
  /// the first process has asked for it.
  virtual void open(CommunicatorNumber number, const SharedSequence& sequence,
                    std::chrono::milliseconds timeout) noexcept = 0;
  /// All ranks of this process have submitted the operation, and agree. There is one call of this or of refuse() for
  /// each operation of a sequence, in order, until it ends. `awaited`: operations that must be released, or refused,
  /// before it; they have been asked for before.
  virtual void ask(const CollectiveId& operation, const CollectiveRequests& requests,
                   const CollectiveDependencies& awaited) noexcept = 0;
  /// This process refuses an operation, instead of asking for it. Also called if the leader has refused it.
  virtual void refuse(const CollectiveId& operation, const std::exception_ptr& why) noexcept = 0;
  /// This process refuses all operations of the communicator: of this sequence from the given operation on, or from the
  /// first one that is not released, whichever is later, and of the other sequences from the first one that is not
  /// released.
  virtual void end(const CollectiveId& from, const std::exception_ptr& why) noexcept = 0;
  /// All operations up to this one have ended on all ranks of this process.
  virtual void completed(const CollectiveId& last) noexcept = 0;
  /// No further call has this number.
  virtual void close(CommunicatorNumber number) noexcept = 0;
  /// What is asked and refused between these two calls may be passed on together, by the second one at the latest. No
  /// other function is called between them.
  virtual void begin_batch() noexcept {}
  virtual void end_batch() noexcept {}

 protected:
  ~WorldOrder() = default;
};

namespace detail {

/// From its construction to its destruction, calls of `order` are a batch.
class AskBatch {
 public:
  /// Null: there is none.
  explicit AskBatch(WorldOrder* order) noexcept : order_(order) {
    if (order_ != nullptr) order_->begin_batch();
  }
  AskBatch(const AskBatch&) = delete;
  AskBatch& operator=(const AskBatch&) = delete;
  ~AskBatch() {
    if (order_ != nullptr) order_->end_batch();
  }

 private:
  WorldOrder* const order_;
};

/// Equal for requests that match (see mismatch), different for others. Throws std::bad_alloc.
[[nodiscard]] std::vector<std::byte> fingerprint(const CollectiveRequests& requests);

}  // namespace detail

}  // namespace cox
