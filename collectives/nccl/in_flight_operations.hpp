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

/// The operations of an NcclClique from the launch of their first part until they have ended on all devices. They are
/// launched in one order everywhere, and so end in it. Under the clique's lock, if not said otherwise.
///
/// Each rank frees its own parts, and rank 0 the operations, which it makes: memory that another thread frees is
/// expensive for both.
class InFlightOperations {
 public:
  using Operations = std::deque<std::shared_ptr<NcclOperation>>;
  /// Operations have ended on all devices and have not failed: called some time after, for each rank, without the lock.
  /// Must not block.
  using CompletedCallback = std::function<void(std::size_t rank, std::span<const std::uint64_t> sequences)>;

  /// Operations, or parts of a rank, that are released at a time.
  static constexpr std::size_t max_batch = 64;

  /// A rank's part that has been launched.
  struct Part {
    std::shared_ptr<NcclOperation> operation;
    NcclOperation::Launched launched;
  };

  /// Completed operations. The destructor notifies of them and frees them: destroy it after releasing the lock.
  class CompletedBatch {
   public:
    explicit CompletedBatch(InFlightOperations& owner) noexcept : owner_(owner) {}
    CompletedBatch(const CompletedBatch&) = delete;
    CompletedBatch& operator=(const CompletedBatch&) = delete;
    ~CompletedBatch();

   private:
    friend class InFlightOperations;
    InFlightOperations& owner_;
    SmallVector<std::shared_ptr<NcclOperation>, max_batch> operations_;  // no more than fit in
    std::optional<std::size_t> rank_;  // whose parts go; none: only whole operations do
  };

  InFlightOperations(std::size_t ranks, CompletedCallback on_completed);

  [[nodiscard]] bool empty() const noexcept { return operations_.empty(); }
  /// The first. Precondition: not empty().
  [[nodiscard]] const std::shared_ptr<NcclOperation>& front() const noexcept { return operations_.front(); }

  /// The rank has launched these parts, in their order. Throws std::bad_alloc; then nothing has changed.
  void add(std::size_t rank, std::span<Part> parts);
  /// The rank's parts up to number `completed_before` have ended. By its thread.
  void note_completed(std::size_t rank, std::uint64_t completed_before, CompletedBatch& completed) noexcept;
  /// Polls what has completed. Returns whether there may be more.
  bool poll(CompletedBatch& completed) noexcept;
  /// Moves all operations to `abandoned`, which is empty; nothing is in flight then.
  void abandon(Operations& abandoned) noexcept;

 private:
  struct alignas(64) Rank {
    std::uint64_t completed_before = 0;  // its parts up to this number have ended
    std::uint64_t released = 0;          // operations whose parts it has released, since the first ever
    // What it is releasing: without the lock, by its thread.
    std::vector<NcclOperation::Launched> parts;
    std::vector<std::uint64_t> sequences;
  };

  void release_parts(std::size_t rank) noexcept;
  template <class HasEnded>
  void pop_completed(CompletedBatch& completed, const HasEnded& has_ended) noexcept;

  const CompletedCallback on_completed_;
  Operations operations_;
  std::uint64_t before_ = 0;  // operations that were under way before the first of them
  std::vector<Rank> ranks_;
};

}  // namespace cox::detail
