#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/access.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

namespace cox::detail {
namespace {

/// The logs of the open devices.
struct OpenLogs {
  std::mutex mutex;
  std::unordered_map<DeviceId, std::weak_ptr<PoisonLog>> logs;  // guarded by mutex

  static OpenLogs& of_process() {
    static auto& made = *new OpenLogs;
    return made;
  }
};

/// The errors with which collective operations have failed on all ranks. The last ones suffice, since the ranks of an
/// operation fail at about the same time.
struct FirstFailures {
  struct Failure {
    CollectiveId collective{};
    std::exception_ptr error;
  };

  std::mutex mutex;
  std::array<Failure, 256> last;  // guarded by mutex, like next
  std::size_t next = 0;

  static FirstFailures& of_process() {
    static auto& made = *new FirstFailures;
    return made;
  }
};

}  // namespace

std::shared_ptr<PoisonLog> PoisonLog::open(DeviceId device) {
  auto opened = std::make_shared<PoisonLog>(device);
  OpenLogs& all = OpenLogs::of_process();
  const std::lock_guard lock(all.mutex);
  all.logs.insert_or_assign(device, opened);
  return opened;
}

std::shared_ptr<PoisonLog> PoisonLog::of_device(DeviceId device) noexcept {
  OpenLogs& all = OpenLogs::of_process();
  const std::lock_guard lock(all.mutex);
  const auto found = all.logs.find(device);
  return found != all.logs.end() ? found->second.lock() : nullptr;
}

std::exception_ptr PoisonLog::refusal(const DeviceBuffer& buffer, std::uint64_t memory, StreamId stream,
                                      const std::source_location& site) const noexcept {
  try {
    const std::optional<MemoryFailure> failure = buffer.poison.failure();
    if (!failure) return nullptr;
    return std::make_exception_ptr(poisoned_error(memory, {device_, stream}, *failure, site));
  } catch (...) {
    return std::current_exception();  // no memory for the error
  }
}

// Caller holds mutex_.
void PoisonLog::append(std::shared_ptr<LoggedOperation> appended, const StreamPosition& end, StreamId stream) {
  if (operations_.size() == operations_.capacity()) {
    const std::size_t more = std::max<std::size_t>(2 * operations_.size(), 64);
    spare_.reserve(more);
    operations_.reserve(more);
  }
  LoggedOperation* const operation = appended.get();
  operations_.push_back(std::move(appended));
  operation->number_ = first_number_ + (operations_.size() - first_ - 1);
  operation->end_ = end;
  operation->stream_ = stream;
  bool spreads = end.position != 0;
  for (const KeptBufferUse& use : operation->memory.uses())
    spreads = spreads || (reads(use.access) && use.buffer->depends_on >= first_number_);
  for (const KeptBufferUse& use : operation->memory.uses()) {
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

void PoisonLog::admit_part(std::shared_ptr<LoggedOperation> part, const StreamPosition& end, CollectiveId collective,
                           StreamId stream) {
  std::shared_ptr<LoggedOperation> refused;
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    const OperationMemory::Uses& uses = part->memory.uses();
    const std::exception_ptr refusal = refusal_of(uses, stream, part->memory.site());
    part->collective_ = collective;
    append(std::move(part), end, stream);
    if (refusal == nullptr) [[likely]] {
      heal(uses);
    } else {
      refused = operations_.back();
      refuse(*refused, refusal);
      refused->next_refused_ = spread(operations_.size() - 1, poison_cause(refused->error_), Reach::Operation);
    }
    if (!failed_.empty()) [[unlikely]]
      failure = take_failure(collective);
  }
  if (failure != nullptr) [[unlikely]]
    fail_part(collective, failure);
  if (refused != nullptr) [[unlikely]]
    tell(std::move(refused));
}

// Caller holds mutex_. Takes the failure that other ranks have reported for the operation. Drops failures of earlier
// operations of the communicator: no part of them is added any more.
std::exception_ptr PoisonLog::take_failure(CollectiveId collective) noexcept {
  std::exception_ptr found;
  std::erase_if(failed_, [&](const Failed& failed) {
    if (failed.collective == collective) found = failed.error;
    return failed.collective.communicator == collective.communicator &&
           failed.collective.sequence <= collective.sequence;
  });
  return found;
}

// Caller holds mutex_.
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

// Notifies the part of a failed operation in this log: now, or when admit_part() adds it. A part that has completed and
// left the log is not notified.
void PoisonLog::fail_part(CollectiveId collective, const std::exception_ptr& error) noexcept {
  std::shared_ptr<LoggedOperation> refused;
  std::shared_ptr<LoggedOperation> part;
  {
    const std::lock_guard lock(mutex_);
    std::size_t index = first_;
    while (index < operations_.size() && operations_[index]->collective_ != collective) ++index;
    if (index == operations_.size()) {
      try {
        failed_.push_back({collective, error});
      } catch (...) {
        report_task_error({device_, StreamId::current(), error});
      }
      return;
    }
    if (!std::exchange(operations_[index]->is_noted_, true)) {
      part = operations_[index];
      part->note_rank_failed(error);
    }
    if (!operations_[index]->has_failed_) refused = spread(index, poison_cause(error), Reach::Operation);
  }
  if (part != nullptr) part->tell_rank_failed(error);
  tell(std::move(refused));
}

// Caller holds mutex_. The operation at `first` has failed, or its whole communicator. Propagates the failure through
// the later operations of the log, in order. If the communicator has failed, its later operations are marked but not
// refused here, since each is notified separately. Returns the operations that are refused, linked by next_refused_.
// Allocates memory only for their errors.
std::shared_ptr<LoggedOperation> PoisonLog::spread(std::size_t first, const std::exception_ptr& cause,
                                                   Reach reach) noexcept {
  any_failed_.store(true, std::memory_order_relaxed);
  const auto mark_writes = [](LoggedOperation& operation) {
    operation.has_failed_ = true;
    for (const KeptBufferUse& use : operation.memory.uses())
      if (writes(use.access)) use.buffer->is_marked = true;
  };
  std::shared_ptr<LoggedOperation> refused;
  std::shared_ptr<LoggedOperation>* last = &refused;
  mark_writes(*operations_[first]);
  for (std::size_t i = first + 1; i < operations_.size(); ++i) {
    LoggedOperation& operation = *operations_[i];
    if (operation.has_failed_) continue;
    const KeptBufferUse* read = nullptr;
    for (const KeptBufferUse& use : operation.memory.uses())
      if (read == nullptr && reads(use.access) && use.buffer->is_marked) read = &use;
    if (read == nullptr) {
      for (const KeptBufferUse& use : operation.memory.uses())
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
    for (const KeptBufferUse& use : operations_[i]->memory.uses())
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

// Removes the operations before `end` and destroys them without the mutex, since that may destroy communicators.
// Removes only as many as spare_ has capacity for; a later call removes the rest.
void PoisonLog::drop(std::size_t end) noexcept {
  Operations dropped = std::exchange(spare_, {});
  {
    const std::lock_guard lock(mutex_);
    if (end == operations_.size()) {
      first_number_ += end - first_;
      first_ = 0;
      operations_.swap(dropped);
    } else {
      end = std::min(end, first_ + dropped.capacity());
      first_number_ += end - first_;
      for (; first_ < end; ++first_) dropped.push_back(std::move(operations_[first_]));
      if (first_ * 2 >= operations_.size()) {
        operations_.erase(operations_.begin(), operations_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
      }
    }
  }
  dropped.clear();
  if (spare_.capacity() < dropped.capacity()) spare_ = std::move(dropped);
}

std::exception_ptr PoisonLog::first_failure(CollectiveId collective, const std::exception_ptr& error) noexcept {
  FirstFailures& all = FirstFailures::of_process();
  const std::lock_guard lock(all.mutex);
  const auto found = std::ranges::find(all.last, collective, &FirstFailures::Failure::collective);
  if (found != all.last.end()) return found->error;
  all.last[all.next++ % all.last.size()] = {collective, error};
  return error;
}

void PoisonLog::fail_collective(CollectiveId collective, const std::exception_ptr& error,
                                std::span<const DeviceId> devices) noexcept {
  for (const DeviceId device : devices)
    if (const auto log = of_device(device)) log->fail_part(collective, error);
}

}  // namespace cox::detail
