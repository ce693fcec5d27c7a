#pragma once

#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/runtime/base/small_vector.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace cox::detail {

/// The in-flight operations of an NcclCommunicator: from their first rank's launch until they have completed on all
/// devices. All devices launch them in the same order, so they complete in this order. All functions must be called
/// with the communicator's lock held, unless stated otherwise.
///
/// Each rank frees its own launches, and rank 0 frees the operations, which it allocates: freeing memory on a thread
/// that has not allocated it is expensive for both threads.
class InFlightOperations {
 public:
  using Operations = std::deque<std::shared_ptr<NcclOperation>>;
  /// Called for each rank when operations have completed on all devices without failure. It is called some time after
  /// their completion, without the lock. Must not block.
  using CompletedCallback = std::function<void(std::size_t rank, std::span<const std::uint64_t> sequences)>;

  /// Maximum number of operations, or of a rank's launches, that are released at a time.
  static constexpr std::size_t max_batch = 64;

  /// Completed operations. The destructor calls the CompletedCallback and frees them; destroy it after releasing the
  /// lock.
  class CompletedBatch {
   public:
    explicit CompletedBatch(InFlightOperations& owner) noexcept : owner_(owner) {}
    CompletedBatch(const CompletedBatch&) = delete;
    CompletedBatch& operator=(const CompletedBatch&) = delete;
    ~CompletedBatch();

   private:
    friend class InFlightOperations;
    InFlightOperations& owner_;
    SmallVector<std::shared_ptr<NcclOperation>, max_batch> operations_;  // at most max_batch: never allocates
    std::optional<std::size_t> rank_;  // the rank whose launches are freed; none: only whole operations are
  };

  /// A copy of the oldest operation's state. Its functions ask the driver, which may block: call them without the lock.
  struct Oldest {
    std::shared_ptr<NcclOperation> operation;
    SmallVector<NcclOperation::RankState, 8> ranks;
    std::uint64_t number = 0;  ///< counts from the very first

    /// Whether it has completed on all devices.
    [[nodiscard]] bool has_ended() const noexcept;
    /// By rank: whether the earlier work on the device has completed. Throws std::bad_alloc.
    [[nodiscard]] SmallVector<bool, 8> arrivals() const;
  };

  InFlightOperations(std::size_t ranks, CompletedCallback on_completed);

  [[nodiscard]] bool empty() const noexcept { return operations_.empty(); }
  /// nullopt if empty(). Throws std::bad_alloc.
  [[nodiscard]] std::optional<Oldest> oldest() const;
  /// Records how many ranks have arrived at the operation. Returns whether it is still the oldest one, and for
  /// `timeout` no further rank has arrived, or all have arrived and it has not completed.
  [[nodiscard]] bool is_overdue(const Oldest& oldest, std::size_t arrived, NcclOperation::Time::duration timeout,
                                NcclOperation::Time now) noexcept;

  /// Adds what the rank has launched, in that order: moves the launches, and takes the operations out of them. Throws
  /// std::bad_alloc; then nothing has changed.
  void add(std::size_t rank, std::span<std::shared_ptr<NcclLaunch>> launches);
  /// Records that the rank's launches up to number `completed_before` have completed. Device thread of the rank.
  void note_completed(std::size_t rank, std::uint64_t completed_before, CompletedBatch& completed) noexcept;
  /// Moves an operation that has ended to `completed`, if it is still the oldest one.
  void pop(const Oldest& ended, CompletedBatch& completed) noexcept;
  /// Moves all operations to `abandoned`, which must be empty. Then no operation is in flight.
  void abandon(Operations& abandoned) noexcept;

 private:
  struct alignas(64) Rank {
    std::uint64_t completed_before = 0;  // its launches up to this number have completed
    std::uint64_t released = 0;          // number of operations whose launches it has released, since the very first
    // The launches that it is releasing. Used without the lock, by the rank's device thread only.
    std::vector<std::shared_ptr<NcclLaunch>> launches;
    std::vector<std::uint64_t> sequences;
  };

  void release_launches(std::size_t rank) noexcept;
  template <class HasEnded>
  void pop_completed(CompletedBatch& completed, const HasEnded& has_ended) noexcept;

  const CompletedCallback on_completed_;
  Operations operations_;
  std::uint64_t before_ = 0;  // number of operations that were removed from the front of operations_
  std::vector<Rank> ranks_;
};

}  // namespace cox::detail
