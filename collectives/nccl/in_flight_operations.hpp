#pragma once

#include <coxswain/collectives/nccl/nccl_operation.hpp>

#include <array>
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
/// Each rank lets go of its parts itself, and rank 0 of the operations, which it makes: memory that another thread
/// frees is dear to both.
class InFlightOperations {
 public:
  using Operations = std::deque<std::shared_ptr<NcclOperation>>;
  /// Operations have ended on all devices and have not failed: called some time after, for each rank, without the lock.
  /// Must not block.
  using Tell = std::function<void(std::size_t rank, std::span<const std::uint64_t> sequences)>;

  /// Operations, or parts of a rank, that are let go of at a time.
  static constexpr std::size_t most_at_a_time = 64;

  /// A rank's part that has been launched.
  struct Part {
    std::shared_ptr<NcclOperation> operation;
    NcclOperation::Launched launched;
  };

  /// What has ended: told of and let go of when this goes, which is to be after the lock.
  class Ended {
   public:
    explicit Ended(InFlightOperations& of) noexcept : of_(of) {}
    Ended(const Ended&) = delete;
    Ended& operator=(const Ended&) = delete;
    ~Ended();

   private:
    friend class InFlightOperations;
    InFlightOperations& of_;
    std::array<std::shared_ptr<NcclOperation>, most_at_a_time> operations_;
    std::size_t count_ = 0;
    std::optional<std::size_t> rank_;  // whose parts go; none: only whole operations do
  };

  InFlightOperations(std::size_t ranks, Tell tell);

  [[nodiscard]] bool empty() const noexcept { return operations_.empty(); }
  /// The first. Precondition: not empty().
  [[nodiscard]] const std::shared_ptr<NcclOperation>& front() const noexcept { return operations_.front(); }

  /// The rank has launched these parts, in their order. Throws std::bad_alloc; then nothing has changed.
  void add(std::size_t rank, std::span<Part> parts);
  /// The rank's parts up to number `ended_before` have ended. By its thread.
  void note_ended(std::size_t rank, std::uint64_t ended_before, Ended& ended) noexcept;
  /// Looks what has ended. Returns whether there may be more.
  bool look(Ended& ended) noexcept;
  /// They are given up: `into`, which is empty, has them, and nothing is under way.
  void give_up(Operations& into) noexcept;

 private:
  struct alignas(64) Rank {
    std::uint64_t ended_before = 0;  // its parts up to this number have ended
    std::uint64_t let_go = 0;        // operations whose parts it has let go of, since the first ever
    // What it lets go of just now: without the lock, by its thread.
    std::vector<NcclOperation::Launched> parts;
    std::vector<std::uint64_t> sequences;
  };

  void let_go(std::size_t rank) noexcept;
  template <class HasEnded>
  void take(Ended& ended, const HasEnded& has_ended) noexcept;

  const Tell tell_;
  Operations operations_;
  std::uint64_t before_ = 0;  // operations that were under way before the first of them
  std::vector<Rank> ranks_;
};

}  // namespace cox::detail
