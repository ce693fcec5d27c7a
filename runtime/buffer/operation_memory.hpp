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

/// A buffer that an operation uses, kept until it lets go of it.
struct KeptBufferUse {
  DeviceBufferReference buffer;
  std::uint64_t memory;  ///< its id; 0: it has none
  Access access;
  bool whole;
};
template <>
inline constexpr bool is_trivially_relocatable<KeptBufferUse> = true;

/// The memory of one operation, for L14: whether what it reads is good, and what becomes of what it writes. Made on the
/// device thread when the operation is accepted, asked and told where it runs, by one thread at a time.
class OperationMemory {
 public:
  using Uses = SmallVector<KeptBufferUse, 4>;

  OperationMemory() noexcept = default;
  /// Throws std::bad_alloc.
  OperationMemory(const BufferUses& uses, std::source_location site);
  /// Throws std::bad_alloc.
  OperationMemory(const Uses& uses, std::source_location site) : uses_(uses), site_(site) {}

  [[nodiscard]] const Uses& uses() const noexcept { return uses_; }
  /// Where the operation was asked for.
  [[nodiscard]] const std::source_location& site() const noexcept { return site_; }

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

  Uses uses_;
  std::source_location site_;
};

/// The IoError Poisoned of an operation at `location` that would read memory with that failure. `memory`: its id, or 0.
[[nodiscard]] IoError poisoned_error(std::uint64_t memory, const Location& location, const MemoryFailure& failure,
                                     std::source_location site);

/// What memory is poisoned with when an operation fails with `error`: the error, or, where it is or was caused by an
/// IoError Poisoned, the cause of that.
[[nodiscard]] std::exception_ptr poison_cause(const std::exception_ptr& error) noexcept;

}  // namespace cox
