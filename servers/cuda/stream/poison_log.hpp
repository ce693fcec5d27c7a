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

/// An operation that a device has issued and whose result may still turn out to be invalid: the device's part of a
/// collective operation, or a later operation that depends on the result of such a part.
class LoggedOperation {
 public:
  LoggedOperation() = default;
  LoggedOperation(const LoggedOperation&) = delete;
  LoggedOperation& operator=(const LoggedOperation&) = delete;

  OperationMemory memory;  ///< not modified while the operation is in the log

 protected:
  ~LoggedOperation() = default;

 private:
  friend class PoisonLog;

  // The operation would read, or has read, poisoned memory (or another device's part has), so what it should have
  // written is poisoned. The failure is recorded first, for the caller that submitted the operation, before other
  // operations can find the memory poisoned; this runs with the log's mutex held and calls no callback. Then it is
  // reported, without a lock. Each function is called at most once, from any thread; it must not throw or block.

  /// `refusal`: the IoError Poisoned. Returns the error with which the operation fails.
  [[nodiscard]] virtual std::exception_ptr record_refusal(const std::exception_ptr& refusal) noexcept = 0;
  virtual void report_refusal(const std::exception_ptr& error) noexcept = 0;
  virtual void record_rank_failure(const std::exception_ptr& error) noexcept { static_cast<void>(error); }
  virtual void report_rank_failure(const std::exception_ptr& error) noexcept { static_cast<void>(error); }

  // Guarded by the log's mutex:
  std::uint64_t number_ = 0;   // in the log, counted from 1
  StreamPosition end_{};       // end of a part of a collective operation; position 0: not such a part
  StreamId stream_{};          // stream that submitted it
  CollectiveId collective_{};  // operation that it is a part of; all zero: none
  bool has_failed_ = false;    // what it should have written has been poisoned
  bool is_recorded_ = false;   // the refusal, or the failure of a rank, has been recorded
  std::exception_ptr cause_;   // with which it poisons memory; set only while a failure is being propagated
  // Owned by the thread that refused the operation, until it has reported the refusal:
  std::exception_ptr error_;
  std::shared_ptr<LoggedOperation> next_refused_;
};

/// Implements L14 on a device that issues work before earlier work has completed. An error that the driver returns is
/// known when the work is issued. Work is issued in the order in which it uses memory, so the `Poison` of buffers is
/// read and written at that time, on the device thread. A collective, however, can fail after it was issued. Operations
/// that are issued after a collective and depend on its result are therefore recorded here until the collective has
/// completed. When it fails, all memory that depends on its result is poisoned, in the order of the log, before the
/// collective is aborted and the device continues. Device thread only, unless said otherwise.
class PoisonLog {
 public:
  /// Creates the log of the device, and makes it the one that of_device() returns. Throws std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<PoisonLog> open(DeviceId device);
  /// The log of an open device; null if the device is not open. Any thread.
  [[nodiscard]] static std::shared_ptr<PoisonLog> of_device(DeviceId device) noexcept;

  explicit PoisonLog(DeviceId device) noexcept : device_(device) {}
  PoisonLog(const PoisonLog&) = delete;
  PoisonLog& operator=(const PoisonLog&) = delete;

  /// No operation of the device has failed so far and no collective is in flight: no memory is poisoned.
  [[nodiscard]] bool is_quiet() const noexcept {
    // Relaxed: a failure on another thread is published to this one by the notification that the operation has ended.
    return operations_.empty() && !any_failed_.load(std::memory_order_relaxed);
  }

  /// No operation is in flight that may still fail.
  [[nodiscard]] bool is_empty() const noexcept { return operations_.empty(); }

  struct Admission {
    std::exception_ptr refusal;  ///< not null: the operation would read poisoned memory; set_failed() must follow
    std::uint64_t number = 0;    ///< in the log; 0: the operation depends on no collective in flight
  };
  /// Call before issuing an operation that uses this memory. Unless the operation is refused, buffers that it
  /// overwrites completely become good. If it depends on a collective in flight, it is added to the log: `make()`
  /// returns a std::shared_ptr<LoggedOperation> with empty memory. `uses`: BufferUses, or the uses of an
  /// OperationMemory. Throws std::bad_alloc.
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
  /// Call if the operation could not be issued; set_failed() follows. Returns false if the operation was refused in the
  /// meantime, which has recorded its failure.
  [[nodiscard]] bool withdraw(std::uint64_t number) noexcept {
    if (number == 0) return true;
    const std::lock_guard lock(mutex_);
    if (number < first_number_) return true;
    return !std::exchange(operations_[first_ + (number - first_number_)]->has_failed_, true);
  }
  /// As admit(), for a launch that was issued before an earlier launch on its stream was known to have failed. Returns
  /// the refusal, or null. Device thread.
  [[nodiscard]] std::exception_ptr admit_issued(std::span<const LaunchUse> uses, StreamId stream,
                                                std::source_location site) {
    const std::lock_guard lock(mutex_);
    if (auto refused = refusal_of(uses, stream, site)) return refused;
    heal(uses);
    return nullptr;
  }
  /// As admit(), for an operation that exists already and has its memory. Returns the refusal, or null.
  [[nodiscard]] std::exception_ptr admit(const std::shared_ptr<LoggedOperation>& operation, StreamId stream);
  /// Adds a part of a collective operation, whose memory has been set and which is about to be issued. It is issued
  /// even if it reads poisoned memory, since the other ranks may have issued their parts. If this part or that of
  /// another rank reads poisoned memory, the part is notified during this call. `end`: position at which the part ends.
  /// Call once for each rank of an operation, in the order of the communicator's operations, except for the sender of a
  /// transfer. Throws std::bad_alloc.
  void admit_part(std::shared_ptr<LoggedOperation> part, const StreamPosition& end, CollectiveId collective,
                  StreamId stream);
  /// Call if a part of the operation is refused with `error`. Returns the error with which the operation fails on all
  /// ranks: the first one, which is the same for all callers unless 1,024 other operations have failed in between.
  /// fail_collective() must follow. Any thread, also with the mutex of a log held.
  [[nodiscard]] static std::exception_ptr first_failure(CollectiveId collective,
                                                        const std::exception_ptr& error) noexcept;
  /// The operation has failed with `error` on all ranks: notifies its parts on these devices, including parts that are
  /// added later. May be called repeatedly. Call without a lock.
  static void fail_collective(CollectiveId collective, const std::exception_ptr& error,
                              std::span<const DeviceId> devices) noexcept;
  /// Whether the contents of the memory depend on a collective in flight.
  [[nodiscard]] bool depends_on_collective(const OperationMemory& memory) const noexcept {
    return !operations_.empty() && depends_on_any(memory.uses());
  }

  /// Poisons what an operation should have written, at once. Operations that were issued earlier have already checked
  /// their memory, so none of them is affected. Any thread.
  template <class Uses>
  void set_failed(const Uses& uses, const std::exception_ptr& error, MemoryFailure::Contents contents) noexcept {
    const std::exception_ptr cause = poison_cause(error);
    any_failed_.store(true, std::memory_order_relaxed);
    for (const auto& use : uses)
      if (writes(use.access)) use.buffer->poison.set(cause, contents);
  }
  /// A part that was added has failed with `error`. Records that for its caller, then poisons what it should have
  /// written and everything computed from it, on this device and on other devices whose operations depend on it, unless
  /// the part has completed. Returns false if a failure of the part had been recorded before, which counts; true: the
  /// caller reports it. Any thread.
  [[nodiscard]] bool fail(LoggedOperation& part, const std::exception_ptr& error) noexcept;
  /// No more parts of the communicator are added. Any thread.
  void forget(CommunicatorNumber communicator) noexcept;

  /// Blocks while another thread is poisoning memory after a failure, until it has recorded the failures for their
  /// callers. Any thread.
  void wait_for_spread() noexcept { const std::lock_guard lock(mutex_); }
  /// Removes completed operations. `clock.completed(slot)`: last position of the slot known to be complete.
  template <class Clock>
  void trim(const Clock& clock) {
    std::size_t left = first_;  // the device thread alone changes the list
    while (left < operations_.size() && has_ended(*operations_[left], clock)) ++left;
    if (left != first_) drop(left);
  }
  /// Removes all operations. Precondition: all issued work has completed.
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
  // Operations of a communicator, one as a rule.
  struct Failed {
    CommunicatorNumber communicator;
    std::uint64_t first;
    std::uint64_t last;
    std::exception_ptr error;

    [[nodiscard]] bool covers(CollectiveId collective) const noexcept {
      return communicator == collective.communicator && first <= collective.sequence && collective.sequence <= last;
    }
  };
  void fail_part(CollectiveId collective, const std::exception_ptr& error) noexcept;
  [[nodiscard]] std::shared_ptr<LoggedOperation> fail_at(std::size_t index, const std::exception_ptr& error) noexcept;
  [[nodiscard]] bool keep_failure(CollectiveId collective, const std::exception_ptr& error) noexcept;
  [[nodiscard]] std::exception_ptr take_failure(CollectiveId collective) noexcept;
  static void refuse(LoggedOperation& operation, const std::exception_ptr& refusal) noexcept;
  enum class Reach : std::uint8_t { Operation, Communicator };
  [[nodiscard]] std::shared_ptr<LoggedOperation> spread(std::size_t first, const std::exception_ptr& cause,
                                                        Reach reach) noexcept;
  static void report(std::shared_ptr<LoggedOperation> refused) noexcept;

  const DeviceId device_;
  std::atomic<bool> any_failed_{false};
  AdaptiveMutex mutex_;
  // Guarded by mutex_. The device thread, which alone adds and removes operations, may read them without the mutex.
  Operations operations_;  // from first_ on; empty if there are none
  std::size_t first_ = 0;
  std::uint64_t first_number_ = 1;  // of operations_[first_]
  std::vector<Failed> failed_;      // failed operations whose parts may not have been added yet
  Operations spare_;                // device thread: empty, keeps its capacity
};

}  // namespace cox::detail
