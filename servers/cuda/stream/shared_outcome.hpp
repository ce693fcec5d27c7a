#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

namespace cox::detail {

class PoisonLog;

/// An operation that several devices do together, as far as L14 is concerned: if one of them would read poisoned
/// memory, it has failed on all. Any thread.
class SharedOutcome {
 public:
  /// Throws std::bad_alloc.
  explicit SharedOutcome(std::size_t ranks) {
    if (ranks > slots_.size()) more_slots_ = std::make_unique<Slot[]>(ranks - slots_.size());
    ranks_ = ranks;
  }
  SharedOutcome(const SharedOutcome&) = delete;
  SharedOutcome& operator=(const SharedOutcome&) = delete;

  /// The rank's part has that number in its device's log. Returns why the operation has failed already, if it has,
  /// which the caller tells the log; null: the log will be told if it does. Once for each rank.
  [[nodiscard]] std::exception_ptr join(std::size_t rank, std::shared_ptr<PoisonLog> log,
                                        std::uint64_t number) noexcept;
  /// The operation has failed: told to the logs of all that have joined. The first failure counts.
  void fail(const std::exception_ptr& error) noexcept;

 private:
  struct Slot {
    std::shared_ptr<PoisonLog> log;        // set before
    std::atomic<std::uint64_t> number{0};  // 0: the rank has not joined
  };

  [[nodiscard]] Slot& slot(std::size_t rank) noexcept {
    return rank < slots_.size() ? slots_[rank] : more_slots_[rank - slots_.size()];
  }

  std::array<Slot, 8> slots_;
  std::unique_ptr<Slot[]> more_slots_;  // of ranks beyond
  std::size_t ranks_ = 0;
  std::atomic<bool> has_failed_{false};  // written with mutex_ held
  std::mutex mutex_;
  std::exception_ptr failure_;  // guarded by mutex_
};

}  // namespace cox::detail
