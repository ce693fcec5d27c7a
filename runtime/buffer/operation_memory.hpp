#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/buffer/resolve_window.hpp>
#include <coxswain/runtime/handle/memory_failure.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>

#include <cstdint>
#include <exception>
#include <source_location>

namespace cox {

/// The memory of one operation, for L14: whether what it reads is good, and what becomes of what it writes. Made on the
/// device thread when the operation is accepted, asked and told where it runs, by one thread at a time.
class OperationMemory {
 public:
  OperationMemory() noexcept = default;
  /// Throws std::bad_alloc.
  OperationMemory(const BufferUses& uses, std::source_location site);

  /// Null: all that the operation reads is good. Else an IoError Poisoned, for the first buffer that is not, with the
  /// first cause as its cause. When it is the operation's turn.
  [[nodiscard]] std::exception_ptr refusal(const Location& location) const noexcept;
  /// Runs `work` as that operation, unless it is refused: then with what `refused(refusal)` makes of that. Throws that,
  /// or what `work` throws; then what it should have written is poisoned.
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
  /// The operation has failed with `error`: what it should have written is poisoned.
  void set_failed(const std::exception_ptr& error, MemoryFailure::Contents contents) const noexcept;
  /// The operation has succeeded: whole allocations that it has overwritten are good.
  void set_succeeded() const noexcept;

 private:
  [[noreturn]] void fail(const std::exception_ptr& error, MemoryFailure::Contents contents) const;

  struct Use {
    DeviceBufferReference buffer;
    std::uint64_t memory;  ///< its id
    Access access;
    bool whole;
  };

  SmallVector<Use, 4> uses_;
  std::source_location site_;
};

/// What memory is poisoned with when an operation fails with `error`: the error, or, where it is or was caused by an
/// IoError Poisoned, the cause of that.
[[nodiscard]] std::exception_ptr poison_cause(const std::exception_ptr& error) noexcept;

}  // namespace cox
