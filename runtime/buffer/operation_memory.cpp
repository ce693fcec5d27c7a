#include <coxswain/runtime/buffer/operation_memory.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>

#include <optional>
#include <string>

namespace cox {
IoError poisoned_error(std::uint64_t memory, const Location& location, const MemoryFailure& failure,
                       std::source_location site) {
  const bool unchanged = failure.contents == MemoryFailure::Contents::Unchanged;
  return {
      IoError::Kind::Poisoned,
      "memory " + (memory == 0 ? "" : std::to_string(memory) + " ") + "was used on " + location.to_string() +
          ", but the operation that should have written it " +
          (unchanged ? "was not executed, so the memory is unchanged: " : "failed, so its contents are undefined: ") +
          describe_cause(failure.cause),
      site, failure.cause};
}

OperationMemory::OperationMemory(const BufferUses& uses, std::source_location site) : site_(site) {
  uses_.reserve(uses.size());
  for (const BufferUse& use : uses)
    uses_.push_back({DeviceBufferReference(*use.buffer), use.memory ? use.memory.id() : 0, use.access, use.whole});
}

std::exception_ptr OperationMemory::refusal(const Location& location) const noexcept {
  for (const KeptBufferUse& use : uses_) {
    if (!reads(use.access) || !use.buffer->poison.is_set()) [[likely]]
      continue;
    try {
      if (const std::optional<MemoryFailure> failure = use.buffer->poison.failure())
        return std::make_exception_ptr(poisoned_error(use.memory, location, *failure, site_));
    } catch (...) {
      return std::current_exception();  // no host memory for the error
    }
  }
  return nullptr;
}

void OperationMemory::set_failed(const std::exception_ptr& error, MemoryFailure::Contents contents) const noexcept {
  const std::exception_ptr cause = poison_cause(error);
  for (const KeptBufferUse& use : uses_)
    if (writes(use.access)) use.buffer->poison.set(cause, contents);
}

void OperationMemory::set_succeeded() const noexcept {
  for (const KeptBufferUse& use : uses_) {
    if (use.access != Access::Overwrite) continue;
    if (use.whole) {
      use.buffer->poison.clear();
    } else {
      use.buffer->poison.note_partial_write();
    }
  }
}

void OperationMemory::fail(const std::exception_ptr& error, MemoryFailure::Contents contents) const {
  set_failed(error, contents);
  std::rethrow_exception(error);
}

std::exception_ptr poison_cause(const std::exception_ptr& error) noexcept {
  const auto* found = find_cause<IoError>(error, IoError::Kind::Poisoned);
  if (found == nullptr) found = find_cause<IoError>(error, IoError::Kind::AllocationFailed);
  return found == nullptr || found->cause() == nullptr ? error : found->cause();
}

}  // namespace cox
