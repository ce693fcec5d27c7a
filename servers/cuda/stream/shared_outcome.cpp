#include <coxswain/servers/cuda/stream/shared_outcome.hpp>

#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <utility>

namespace cox::detail {

// Sequentially consistent, as in fail(): of a rank that joins while the operation fails one finds the other, or both
// do.
std::exception_ptr SharedOutcome::join(std::size_t rank, std::shared_ptr<PoisonLog> log,
                                       std::uint64_t number) noexcept {
  Slot& joined = slot(rank);
  joined.log = std::move(log);
  joined.number.store(number, std::memory_order_seq_cst);
  if (!has_failed_.load(std::memory_order_seq_cst)) [[likely]]
    return nullptr;
  const std::lock_guard lock(mutex_);
  return failure_;
}

void SharedOutcome::fail(const std::exception_ptr& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) return;
    failure_ = error;
    has_failed_.store(true, std::memory_order_seq_cst);
  }
  for (std::size_t rank = 0; rank < ranks_; ++rank)
    if (const std::uint64_t number = slot(rank).number.load(std::memory_order_seq_cst); number != 0)
      slot(rank).log->fail_shared(number, error);
}

}  // namespace cox::detail
