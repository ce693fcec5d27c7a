#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <coxswain/runtime/base/access.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace cox::detail {

std::exception_ptr PoisonLog::refusal(const DeviceBuffer& buffer, std::uint64_t memory, StreamId stream,
                                      const std::source_location& site) const noexcept {
  try {
    const std::optional<MemoryFailure> failure = buffer.poison.failure();
    if (!failure) return nullptr;
    return std::make_exception_ptr(poisoned_error(memory, {device_, stream}, *failure, site));
  } catch (...) {
    return std::current_exception();  // no memory to say it
  }
}

// Under the lock.
void PoisonLog::append(const std::shared_ptr<LoggedOperation>& operation, const StreamPosition& end, StreamId stream) {
  operations_.push_back(operation);
  operation->number_ = first_number_ + (operations_.size() - first_ - 1);
  operation->end_ = end;
  operation->stream_ = stream;
  bool spreads = end.position != 0;
  for (const OperationMemory::Use& use : operation->memory.uses())
    spreads = spreads || (reads(use.access) && use.buffer->depends_on >= first_number_);
  for (const OperationMemory::Use& use : operation->memory.uses()) {
    if (!writes(use.access)) continue;
    if (spreads) {
      use.buffer->depends_on = operation->number_;
    } else if (use.access == Access::Overwrite && use.whole) {
      use.buffer->depends_on = 0;
    }
  }
}

std::exception_ptr PoisonLog::admit(const std::shared_ptr<LoggedOperation>& operation, StreamId stream) {
  const OperationMemory::Uses& uses = operation->memory.uses();
  const std::lock_guard lock(mutex_);
  if (auto refused = refusal_of(uses, stream, operation->memory.site())) return refused;
  if (depends_on_any(uses)) append(operation, {}, stream);
  heal(uses);
  return nullptr;
}

void PoisonLog::admit_part(const std::shared_ptr<LoggedOperation>& part, const StreamPosition& end,
                           SharedOutcome& outcome, std::size_t rank, StreamId stream) {
  std::shared_ptr<LoggedOperation> refused;
  {
    const std::lock_guard lock(mutex_);
    const OperationMemory::Uses& uses = part->memory.uses();
    const std::exception_ptr refusal = refusal_of(uses, stream, part->memory.site());
    append(part, end, stream);
    if (refusal == nullptr) {
      heal(uses);
    } else {
      refused = part;
      refuse(*part, refusal);
      refused->next_refused_ = spread(operations_.size() - 1, poison_cause(part->error_), Reach::Operation);
    }
  }
  const std::exception_ptr failure = outcome.join(rank, shared_from_this(), part->number_);
  if (failure != nullptr) fail_shared(part->number_, failure);
  tell(std::move(refused));
}

// Under the lock.
void PoisonLog::refuse(LoggedOperation& operation, const std::exception_ptr& refusal) noexcept {
  operation.error_ = operation.note_refused(refusal);
  operation.is_noted_ = true;
}

void PoisonLog::fail(const LoggedOperation& part, const std::exception_ptr& error) noexcept {
  std::shared_ptr<LoggedOperation> refused;
  {
    const std::lock_guard lock(mutex_);
    if (part.number_ < first_number_ || part.has_failed_) return;
    refused = spread(first_ + (part.number_ - first_number_), poison_cause(error), Reach::Communicator);
  }
  tell(std::move(refused));
}

// The operation that this part is of has failed: the part is told, too.
void PoisonLog::fail_shared(std::uint64_t number, const std::exception_ptr& error) noexcept {
  std::shared_ptr<LoggedOperation> refused;
  std::shared_ptr<LoggedOperation> part;
  {
    const std::lock_guard lock(mutex_);
    if (number < first_number_) return;
    const std::size_t index = first_ + (number - first_number_);
    if (!std::exchange(operations_[index]->is_noted_, true)) {
      part = operations_[index];
      part->note_rank_failed(error);
    }
    if (!operations_[index]->has_failed_) refused = spread(index, poison_cause(error), Reach::Operation);
  }
  if (part != nullptr) part->tell_rank_failed(error);
  tell(std::move(refused));
}

// Under the lock. The operation at `first` has failed, or its whole communicator, of which each is told by itself: goes
// through what comes behind it, in its order. Returns those of it that are refused by that, linked. Needs no memory but
// for their errors.
std::shared_ptr<LoggedOperation> PoisonLog::spread(std::size_t first, const std::exception_ptr& cause,
                                                   Reach reach) noexcept {
  any_failed_.store(true, std::memory_order_relaxed);
  const auto mark_writes = [](LoggedOperation& operation) {
    operation.has_failed_ = true;
    for (const OperationMemory::Use& use : operation.memory.uses())
      if (writes(use.access)) use.buffer->is_marked = true;
  };
  std::shared_ptr<LoggedOperation> refused;
  std::shared_ptr<LoggedOperation>* last = &refused;
  mark_writes(*operations_[first]);
  for (std::size_t i = first + 1; i < operations_.size(); ++i) {
    LoggedOperation& operation = *operations_[i];
    if (operation.has_failed_) continue;
    const OperationMemory::Use* read = nullptr;
    for (const OperationMemory::Use& use : operation.memory.uses())
      if (read == nullptr && reads(use.access) && use.buffer->is_marked) read = &use;
    if (read == nullptr) {
      for (const OperationMemory::Use& use : operation.memory.uses())
        if (use.access == Access::Overwrite && use.whole) use.buffer->is_marked = false;
      continue;
    }
    mark_writes(operation);
    if (reach == Reach::Communicator && operation.end_.position != 0 &&
        operation.end_.stream == operations_[first]->end_.stream)
      continue;
    try {
      throw poisoned_error(read->memory, {device_, operation.stream_}, {cause, MemoryFailure::Contents::Undefined},
                           operation.memory.site());
    } catch (...) {
      refuse(operation, std::current_exception());
    }
    *last = operations_[i];
    last = &operation.next_refused_;
  }
  for (std::size_t i = first; i < operations_.size(); ++i)
    for (const OperationMemory::Use& use : operations_[i]->memory.uses())
      if (std::exchange(use.buffer->is_marked, false))
        use.buffer->poison.set(cause, MemoryFailure::Contents::Undefined);
  return refused;
}

void PoisonLog::tell(std::shared_ptr<LoggedOperation> refused) noexcept {
  while (refused != nullptr) {
    const std::shared_ptr<LoggedOperation> operation = std::exchange(refused, std::move(refused->next_refused_));
    operation->tell_refused(std::exchange(operation->error_, nullptr));
  }
}

// Those before `end` are let go, without the lock: that may end communicators. The rest is moved together now and then.
void PoisonLog::drop(std::size_t end) noexcept {
  while (first_ < end) {
    std::array<std::shared_ptr<LoggedOperation>, 16> dropped;
    const std::lock_guard lock(mutex_);
    const std::size_t count = std::min(end - first_, dropped.size());
    for (std::size_t i = 0; i < count; ++i) dropped[i] = std::move(operations_[first_ + i]);
    first_number_ += count;
    first_ += count;
    if (first_ * 2 < operations_.size()) continue;
    operations_.erase(operations_.begin(), operations_.begin() + static_cast<std::ptrdiff_t>(first_));
    end -= first_;
    first_ = 0;
  }
}

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

std::exception_ptr SharedOutcome::fail(const std::exception_ptr& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) {
    failure_ = error;
    has_failed_.store(true, std::memory_order_seq_cst);
  }
  return failure_;
}

void SharedOutcome::tell() noexcept {
  const std::exception_ptr error = [this] {
    const std::lock_guard lock(mutex_);
    return failure_;
  }();
  for (std::size_t rank = 0; rank < ranks_; ++rank)
    if (const std::uint64_t number = slot(rank).number.load(std::memory_order_seq_cst); number != 0)
      slot(rank).log->fail_shared(number, error);
}

}  // namespace cox::detail
