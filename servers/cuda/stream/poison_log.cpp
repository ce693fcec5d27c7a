#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/access.hpp>

#include <algorithm>
#include <array>
#include <new>
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
  std::array<Failure, 1024> last;  // guarded by mutex, like next
  std::size_t next = 0;

  static FirstFailures& of_process() {
    static auto& made = *new FirstFailures;
    return made;
  }
};

// There was no memory for the error.
bool is_bad_alloc(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::shared_ptr<PoisonLog> PoisonLog::open(DeviceId device) {
  auto opened = std::make_shared<PoisonLog>(device);
  opened->failed_.reserve(64);  // see keep_failure()
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
  std::shared_ptr<LoggedOperation> notified;
  std::exception_ptr failure;  // that another rank has reported
  {
    const std::lock_guard lock(mutex_);
    const OperationMemory::Uses& uses = part->memory.uses();
    const std::exception_ptr refusal = refusal_of(uses, stream, part->memory.site());
    part->collective_ = collective;
    append(std::move(part), end, stream);
    if (!failed_.empty()) [[unlikely]]
      failure = take_failure(collective);
    if (refusal == nullptr) [[likely]]
      heal(uses);
    if (failure != nullptr) [[unlikely]] {
      notified = operations_.back();
      refused = fail_at(operations_.size() - 1, failure);
    } else if (refusal != nullptr) [[unlikely]] {
      refused = operations_.back();
      refuse(*refused, refusal);
      refused->next_refused_ = spread(operations_.size() - 1, poison_cause(refused->error_), Reach::Operation);
    }
  }
  if (notified != nullptr) [[unlikely]]
    notified->report_rank_failure(failure);
  if (refused != nullptr) [[unlikely]]
    report(std::move(refused));
}

// Caller holds mutex_. Keeps a failure of an operation whose part is not in the log; the first one counts. There is
// room for one more, except after memory could not be had; then the failure is joined to another of the communicator,
// and covers all operations in between, which is the safe side. Returns false if there is none, either.
bool PoisonLog::keep_failure(CollectiveId collective, const std::exception_ptr& error) noexcept {
  Failed* same = nullptr;
  for (Failed& failed : failed_) {
    if (failed.covers(collective)) return true;
    if (failed.communicator == collective.communicator) same = &failed;
  }
  if (failed_.size() < failed_.capacity()) {
    failed_.push_back({collective.communicator, collective.sequence, collective.sequence, error});
    try {
      if (failed_.size() == failed_.capacity()) failed_.reserve(2 * failed_.size());
    } catch (const std::bad_alloc&) {  // this one has been kept; the next one finds no room
    }
    return true;
  }
  if (same == nullptr) return false;
  same->first = std::min(same->first, collective.sequence);
  same->last = std::max(same->last, collective.sequence);
  return true;
}

// Caller holds mutex_. Returns the failure that other ranks have reported for the operation, or null. Drops failures of
// earlier operations of the communicator: of them no part is added any more that could be refused.
std::exception_ptr PoisonLog::take_failure(CollectiveId collective) noexcept {
  std::exception_ptr found;
  std::erase_if(failed_, [&](const Failed& failed) {
    if (failed.covers(collective)) found = failed.error;
    return failed.communicator == collective.communicator && failed.last <= collective.sequence;
  });
  return found;
}

void PoisonLog::forget(CommunicatorNumber communicator) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(failed_, [&](const Failed& failed) { return failed.communicator == communicator; });
}

// Caller holds mutex_.
void PoisonLog::refuse(LoggedOperation& operation, const std::exception_ptr& refusal) noexcept {
  operation.error_ = operation.record_refusal(refusal);
  operation.is_recorded_ = true;
}

bool PoisonLog::fail(LoggedOperation& part, const std::exception_ptr& error) noexcept {
  std::shared_ptr<LoggedOperation> refused;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = !std::exchange(part.is_recorded_, true);
    if (is_first) part.record_rank_failure(error);  // before other operations find its memory poisoned
    if (part.number_ >= first_number_ && !part.has_failed_)
      refused = spread(first_ + (part.number_ - first_number_), poison_cause(error), Reach::Communicator);
  }
  report(std::move(refused));
  return is_first;
}

// Caller holds mutex_. The operation that this part is of has failed on another rank. As spread(), with the part
// itself.
std::shared_ptr<LoggedOperation> PoisonLog::fail_at(std::size_t index, const std::exception_ptr& error) noexcept {
  LoggedOperation& part = *operations_[index];
  part.is_recorded_ = true;
  part.record_rank_failure(error);
  return part.has_failed_ ? nullptr : spread(index, poison_cause(error), Reach::Operation);
}

// Notifies the part of a failed operation in this log: now, or when admit_part() adds it. The part has not completed,
// since it waits for the rank that reports the failure, which has not launched its own part yet.
void PoisonLog::fail_part(CollectiveId collective, const std::exception_ptr& error) noexcept {
  std::shared_ptr<LoggedOperation> refused;
  std::shared_ptr<LoggedOperation> part;
  bool is_kept = true;
  {
    const std::lock_guard lock(mutex_);
    std::size_t index = first_;
    while (index < operations_.size() && operations_[index]->collective_ != collective) ++index;
    if (index == operations_.size()) {
      is_kept = keep_failure(collective, error);
    } else if (!operations_[index]->is_recorded_) {
      part = operations_[index];
      refused = fail_at(index, error);
    } else if (!operations_[index]->has_failed_) {
      refused = spread(index, poison_cause(error), Reach::Operation);
    }
  }
  if (!is_kept) report_task_error({device_, StreamId::current(), error});
  if (part != nullptr) part->report_rank_failure(error);
  report(std::move(refused));
}

// Caller holds mutex_. The operation at `first` has failed, or its whole communicator. Propagates the failure through
// the later operations of the log, in order. If the communicator has failed, its later operations are marked but not
// refused here, since each is notified separately. Returns the operations that are refused, linked by next_refused_.
// Allocates memory only for their errors.
std::shared_ptr<LoggedOperation> PoisonLog::spread(std::size_t first, const std::exception_ptr& cause,
                                                   Reach reach) noexcept {
  any_failed_.store(true, std::memory_order_relaxed);
  const auto mark_writes = [](LoggedOperation& operation, const std::exception_ptr& its_cause) {
    operation.has_failed_ = true;
    operation.cause_ = its_cause;
    for (const KeptBufferUse& use : operation.memory.uses())
      if (writes(use.access)) use.buffer->marked_by = &operation.cause_;
  };
  std::shared_ptr<LoggedOperation> refused;
  std::shared_ptr<LoggedOperation>* last = &refused;
  mark_writes(*operations_[first], cause);
  for (std::size_t i = first + 1; i < operations_.size(); ++i) {
    LoggedOperation& operation = *operations_[i];
    if (operation.has_failed_) continue;
    const KeptBufferUse* read = nullptr;
    for (const KeptBufferUse& use : operation.memory.uses())
      if (read == nullptr && reads(use.access) && use.buffer->marked_by != nullptr) read = &use;
    if (read == nullptr) {
      for (const KeptBufferUse& use : operation.memory.uses())
        if (use.access == Access::Overwrite && use.whole) use.buffer->marked_by = nullptr;
      continue;
    }
    const std::exception_ptr read_cause = *read->buffer->marked_by;
    if (reach == Reach::Communicator && operation.end_.position != 0 &&
        operation.end_.stream == operations_[first]->end_.stream) {
      mark_writes(operation, read_cause);
      continue;
    }
    try {
      throw poisoned_error(read->memory, {device_, operation.stream_}, {read_cause, MemoryFailure::Contents::Undefined},
                           operation.memory.site());
    } catch (...) {
      refuse(operation, std::current_exception());
    }
    // The ranks of a collective have agreed on its error.
    mark_writes(operation, is_bad_alloc(operation.error_) ? read_cause : poison_cause(operation.error_));
    *last = operations_[i];
    last = &operation.next_refused_;
  }
  for (std::size_t i = first; i < operations_.size(); ++i)
    for (const KeptBufferUse& use : operations_[i]->memory.uses())
      if (const auto* const marked_by = std::exchange(use.buffer->marked_by, nullptr))
        use.buffer->poison.set(*marked_by, MemoryFailure::Contents::Undefined);
  for (std::size_t i = first; i < operations_.size(); ++i) operations_[i]->cause_ = nullptr;
  return refused;
}

void PoisonLog::report(std::shared_ptr<LoggedOperation> refused) noexcept {
  while (refused != nullptr) {
    const std::shared_ptr<LoggedOperation> operation = std::exchange(refused, std::move(refused->next_refused_));
    operation->report_refusal(std::exchange(operation->error_, nullptr));
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
  FirstFailures::Failure evicted;  // destroyed without the lock
  const std::lock_guard lock(all.mutex);
  const auto found = std::ranges::find(all.last, collective, &FirstFailures::Failure::collective);
  if (found != all.last.end()) return found->error;
  evicted = std::exchange(all.last[all.next++ % all.last.size()], {collective, error});
  return error;
}

void PoisonLog::fail_collective(CollectiveId collective, const std::exception_ptr& error,
                                std::span<const DeviceId> devices) noexcept {
  for (const DeviceId device : devices)
    if (const auto log = of_device(device)) log->fail_part(collective, error);
}

}  // namespace cox::detail
