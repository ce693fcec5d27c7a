#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/buffer/resolve_window.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/handle/memory_failure.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>

#include <cstdint>
#include <exception>
#include <source_location>

namespace cox {

/// A buffer that an operation uses. Keeps the buffer object alive until the operation releases it.
struct KeptBufferUse {
  DeviceBufferReference buffer;
  std::uint64_t memory;  ///< id of the allocation; 0: none
  Access access;
  bool whole;
};
template <>
inline constexpr bool is_trivially_relocatable<KeptBufferUse> = true;

/// The buffers of one operation, for L14: checks that those that it reads are good, and poisons or heals those that it
/// writes. Created on the device thread when the operation is accepted. Afterwards used on the thread that runs the
/// operation, by one thread at a time.
class OperationMemory {
 public:
  using Uses = SmallVector<KeptBufferUse, 4>;

  OperationMemory() noexcept = default;
  /// Throws std::bad_alloc.
  OperationMemory(const BufferUses& uses, std::source_location site);
  /// Throws std::bad_alloc.
  OperationMemory(const Uses& uses, std::source_location site) : uses_(uses), site_(site) {}

  [[nodiscard]] const Uses& uses() const noexcept { return uses_; }
  /// The call that submitted the operation.
  [[nodiscard]] const std::source_location& site() const noexcept { return site_; }

  /// Returns null if all buffers that the operation reads are good. Otherwise an IoError Poisoned for the first one
  /// that is not; its cause is the first failure of that memory. Call it when it is the turn of the operation to run.
  [[nodiscard]] std::exception_ptr refusal(const Location& location) const noexcept;
  /// Runs `work` as the operation. If the operation is refused, throws `refused(refusal)` instead and does not run
  /// `work`. Throws what `work` throws. After either failure, the buffers that the operation should have written are
  /// poisoned.
  template <class Work, class Refused>
  void run(const Location& location, Work&& work, Refused&& refused) const {
    if (const std::exception_ptr refusal = this->refusal(location)) [[unlikely]]
      fail(refused(refusal), MemoryFailure::Contents::Unchanged);
    try {
      work();
    } catch (...) {
      fail(std::current_exception(), MemoryFailure::Contents::Undefined);
    }
    set_succeeded();
  }
  /// Poisons the buffers that the operation should have written. Call it when the operation has failed with `error`.
  void set_failed(const std::exception_ptr& error, MemoryFailure::Contents contents) const noexcept;
  /// Clears the poison of whole allocations that the operation has overwritten. Call it when the operation has
  /// succeeded.
  void set_succeeded() const noexcept;

 private:
  [[noreturn]] void fail(const std::exception_ptr& error, MemoryFailure::Contents contents) const;

  Uses uses_;
  std::source_location site_;
};

/// The IoError Poisoned for an operation at `location` that would read memory with `failure`. `memory`: id of the
/// allocation, or 0.
[[nodiscard]] IoError poisoned_error(std::uint64_t memory, const Location& location, const MemoryFailure& failure,
                                     std::source_location site);

/// The cause with which memory is poisoned when an operation fails with `error`: usually `error` itself. If that is or
/// was caused by an IoError Poisoned or AllocationFailed, the cause of that IoError instead.
[[nodiscard]] std::exception_ptr poison_cause(const std::exception_ptr& error) noexcept;

}  // namespace cox
