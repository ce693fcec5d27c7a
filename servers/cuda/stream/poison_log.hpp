#pragma once

#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/buffer/resolve_window.hpp>
#include <coxswain/runtime/handle/memory_failure.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/stream/piece_uses.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

namespace cox::detail {

class PoisonLog;

/// An operation that a device has issued and that may still turn out to have computed with what was never written: one
/// that several devices do together, or one behind it that depends on its result.
class LoggedOperation {
 public:
  LoggedOperation() = default;
  LoggedOperation(const LoggedOperation&) = delete;
  LoggedOperation& operator=(const LoggedOperation&) = delete;

  OperationMemory memory;  ///< not changed while it is in the log

 protected:
  ~LoggedOperation() = default;

 private:
  friend class PoisonLog;

  // The operation would read, or has read, poisoned memory, or another device's part of it: what it should have written
  // is poisoned. First it is noted for whoever asked for the operation, before others can find the memory poisoned;
  // that is under the log's lock, and calls nothing. Then it is told, without a lock. Once at most; any thread;
  // throws nothing and does not block.

  /// `refusal`: the IoError Poisoned. Returns what it fails with.
  [[nodiscard]] virtual std::exception_ptr note_refused(const std::exception_ptr& refusal) noexcept = 0;
  virtual void tell_refused(const std::exception_ptr& error) noexcept = 0;
  virtual void note_rank_failed(const std::exception_ptr& error) noexcept { static_cast<void>(error); }
  virtual void tell_rank_failed(const std::exception_ptr& error) noexcept { static_cast<void>(error); }

  // Guarded by the log's mutex:
  std::uint64_t number_ = 0;   // in the log, counted from 1
  StreamPosition end_{};       // of a part of an operation of several devices; position 0: it is none
  StreamId stream_{};          // that it is of
  CollectiveId collective_{};  // of which it is a part; all zero: of none
  bool has_failed_ = false;    // what it should have written has been poisoned
  bool is_noted_ = false;      // that it is refused, or that a rank has failed
  // Of whoever has found that it is refused, until it has been told:
  std::exception_ptr error_;
  std::shared_ptr<LoggedOperation> next_refused_;
};

/// L14 on a device that issues work before the work before it has ended. What the driver refuses is known when the work
/// is issued, in the order in which memory is used: `Poison` of the buffers is read and written then, on the device
/// thread. A collective can fail later. What is issued behind one and depends on its result is therefore noted here,
/// until the collective has ended: when it fails, everything that has come of it is poisoned in the order of the log,
/// before the collective is given up and the device goes on. Device thread only, unless said otherwise.
class PoisonLog {
 public:
  /// The log of the device from now on. Throws std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<PoisonLog> open(DeviceId device);
  /// Null: the device is not open. Any thread.
  [[nodiscard]] static std::shared_ptr<PoisonLog> of_device(DeviceId device) noexcept;

  explicit PoisonLog(DeviceId device) noexcept : device_(device) {}
  PoisonLog(const PoisonLog&) = delete;
  PoisonLog& operator=(const PoisonLog&) = delete;

  /// Nothing on the device has failed yet and no collective is under way: all memory is good.
  [[nodiscard]] bool is_quiet() const noexcept {
    // Relaxed: what has failed on another thread is passed to this one by whatever tells that it has ended.
    return operations_.empty() && !any_failed_.load(std::memory_order_relaxed);
  }

  /// Nothing is under way that may still fail.
  [[nodiscard]] bool is_empty() const noexcept { return operations_.empty(); }

  struct Admission {
    std::exception_ptr refusal;  ///< the operation would read poisoned memory; then set_failed() must follow
    std::uint64_t number = 0;    ///< in the log; 0: it depends on no collective under way
  };
  /// An operation that uses this memory is about to be issued. If it is not refused, what it overwrites as a whole is
  /// good, and if it depends on a collective under way, `make()`, a std::shared_ptr<LoggedOperation> without memory, is
  /// noted. `uses`: BufferUses, or those of an OperationMemory. Throws std::bad_alloc.
  template <class Uses, class Make>
  [[nodiscard]] Admission admit(const Uses& uses, StreamId stream, std::source_location site, Make&& make) {
    Admission admission;
    if (operations_.empty()) {
      admission.refusal = refusal_of(uses, stream, site);
      if (admission.refusal == nullptr) heal(uses);
      return admission;
    }
    const std::lock_guard lock(mutex_);
    admission.refusal = refusal_of(uses, stream, site);
    if (admission.refusal != nullptr) return admission;
    if (depends_on_any(uses)) {
      const std::shared_ptr<LoggedOperation> operation = make();
      operation->memory = OperationMemory(uses, site);
      append(operation, {}, stream);
      admission.number = operation->number_;
    }
    heal(uses);
    return admission;
  }
  /// The operation could not be issued, for which set_failed() follows. Returns false if it has been told meanwhile
  /// that it is refused.
  [[nodiscard]] bool withdraw(std::uint64_t number) noexcept {
    if (number == 0) return true;
    const std::lock_guard lock(mutex_);
    if (number < first_number_) return true;
    return !std::exchange(operations_[first_ + (number - first_number_)]->has_failed_, true);
  }
  /// As admit(), for a launch that was issued before what comes before it on its stream was known to have failed.
  /// Returns the refusal, if any. Device thread.
  [[nodiscard]] std::exception_ptr admit_issued(std::span<const LaunchUse> uses, StreamId stream,
                                                std::source_location site) {
    const std::lock_guard lock(mutex_);
    if (auto refused = refusal_of(uses, stream, site)) return refused;
    heal(uses);
    return nullptr;
  }
  /// As admit(), for an operation that exists already and has its memory. Returns the refusal, if any.
  [[nodiscard]] std::exception_ptr admit(const std::shared_ptr<LoggedOperation>& operation, StreamId stream);
  /// A part of an operation of several devices, with its memory, is about to be issued, which it will be whatever it
  /// reads: the other ranks may have issued theirs. If it reads poisoned memory, or another rank's does, it is told
  /// here. `end`: where it ends. Once for each rank of an operation, in the order of a communicator's. Throws
  /// std::bad_alloc.
  void admit_part(std::shared_ptr<LoggedOperation> part, const StreamPosition& end, CollectiveId collective,
                  StreamId stream);
  /// A part of that operation is refused with `error`: returns what it fails with on all ranks, which is the same for
  /// all that ask. fail_collective() must follow. Any thread, also with a log's lock held.
  [[nodiscard]] static std::exception_ptr first_failure(CollectiveId collective,
                                                        const std::exception_ptr& error) noexcept;
  /// An operation has failed with that on all ranks: its parts on these devices are told, those that come later, too.
  /// Any number of times, without a lock.
  static void fail_collective(CollectiveId collective, const std::exception_ptr& error,
                              std::span<const DeviceId> devices) noexcept;
  /// Whether what the memory holds depends on a collective under way.
  [[nodiscard]] bool depends_on_collective(const OperationMemory& memory) const noexcept {
    return !operations_.empty() && depends_on_any(memory.uses());
  }

  /// What an operation should have written is poisoned, here and now: no work that was issued before reads it any more,
  /// or sees it otherwise. Any thread.
  template <class Uses>
  void set_failed(const Uses& uses, const std::exception_ptr& error, MemoryFailure::Contents contents) noexcept {
    const std::exception_ptr cause = poison_cause(error);
    any_failed_.store(true, std::memory_order_relaxed);
    for (const auto& use : uses)
      if (writes(use.access)) use.buffer->poison.set(cause, contents);
  }
  /// A part in the log has failed with `error`: what it should have written, and all that has come of it, is poisoned,
  /// on this device, and on others where their operations depend on it. Who asked for it is told otherwise. Nothing, if
  /// it has ended. Idempotent. Any thread.
  void fail(const LoggedOperation& part, const std::exception_ptr& error) noexcept;

  /// What another thread is just marking has been marked, and noted for whoever asked for it. Any thread.
  void wait_for_spread() noexcept { const std::lock_guard lock(mutex_); }
  /// Forgets what has ended. `completed(slot)`: how far that has come.
  template <class Clock>
  void trim(const Clock& clock) {
    std::size_t left = first_;  // the device thread alone changes the list
    while (left < operations_.size() && has_ended(*operations_[left], clock)) ++left;
    if (left != first_) drop(left);
  }
  /// All that was issued has ended.
  void clear() noexcept {
    if (!operations_.empty()) drop(operations_.size());
  }

 private:
  template <class Uses>
  [[nodiscard]] std::exception_ptr refusal_of(const Uses& uses, StreamId stream,
                                              const std::source_location& site) const noexcept {
    for (const auto& use : uses)
      if (reads(use.access) && use.buffer->poison.is_set()) [[unlikely]]
        if (auto refused = refusal(buffer_of(use), id_of(use), stream, site)) return refused;
    return nullptr;
  }
  [[nodiscard]] std::exception_ptr refusal(const DeviceBuffer& buffer, std::uint64_t memory, StreamId stream,
                                           const std::source_location& site) const noexcept;
  template <class Uses>
  [[nodiscard]] bool depends_on_any(const Uses& uses) const noexcept {
    for (const auto& use : uses)
      if (use.buffer->depends_on >= first_number_) return true;
    return false;
  }
  template <class Uses>
  static void heal(const Uses& uses) noexcept {
    for (const auto& use : uses) {
      if (use.access != Access::Overwrite) continue;
      if (use.whole) {
        use.buffer->poison.clear();
      } else {
        use.buffer->poison.note_partial_write();
      }
    }
  }
  [[nodiscard]] static DeviceBuffer& buffer_of(const BufferUse& use) noexcept { return *use.buffer; }
  [[nodiscard]] static DeviceBuffer& buffer_of(const KeptBufferUse& use) noexcept { return *use.buffer.operator->(); }
  [[nodiscard]] static DeviceBuffer& buffer_of(const LaunchUse& use) noexcept { return *use.buffer; }
  [[nodiscard]] static std::uint64_t id_of(const LaunchUse&) noexcept { return 0; }
  [[nodiscard]] static std::uint64_t id_of(const BufferUse& use) noexcept { return use.memory ? use.memory.id() : 0; }
  [[nodiscard]] static std::uint64_t id_of(const KeptBufferUse& use) noexcept { return use.memory; }
  using Operations = std::vector<std::shared_ptr<LoggedOperation>>;
  void append(std::shared_ptr<LoggedOperation> operation, const StreamPosition& end, StreamId stream);
  template <class Clock>
  [[nodiscard]] static bool has_ended(const LoggedOperation& operation, const Clock& clock) {
    return operation.end_.position == 0 || clock.completed(operation.end_.stream) >= operation.end_.position;
  }
  void drop(std::size_t end) noexcept;
  struct Failed {
    CollectiveId collective;
    std::exception_ptr error;
  };
  void fail_part(CollectiveId collective, const std::exception_ptr& error) noexcept;
  [[nodiscard]] std::exception_ptr take_failure(CollectiveId collective) noexcept;
  static void refuse(LoggedOperation& operation, const std::exception_ptr& refusal) noexcept;
  enum class Reach : std::uint8_t { Operation, Communicator };
  [[nodiscard]] std::shared_ptr<LoggedOperation> spread(std::size_t first, const std::exception_ptr& cause,
                                                        Reach reach) noexcept;
  static void tell(std::shared_ptr<LoggedOperation> refused) noexcept;

  const DeviceId device_;
  std::atomic<bool> any_failed_{false};
  AdaptiveMutex mutex_;
  // Guarded by mutex_, but the device thread, which alone adds and removes, may look without it:
  Operations operations_;  // from first_ on; empty if there are none
  std::size_t first_ = 0;
  std::uint64_t first_number_ = 1;  // of operations_[first_]
  std::vector<Failed> failed_;      // operations that have failed, perhaps before their parts have come here
  Operations spare_;                // empty, with room: of the device thread
};

}  // namespace cox::detail
