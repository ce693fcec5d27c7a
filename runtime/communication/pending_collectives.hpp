#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace cox {

/// Counts the queued calls of a device that may submit collectives: collectives, transfers and replays. When the device
/// is closing and the count is zero, its rank has submitted its last operation, whatever else is queued on its thread,
/// so the other ranks need not wait for the end of its shutdown (L16). One per device, never destroyed. Any thread.
class PendingCollectives {
 public:
  struct Listener {
    /// The server of that generation is closing and has no such calls left. Called at least once per shutdown, possibly
    /// after the shutdown has ended, on the thread that calls shutdown() or on the one on which the last call ended.
    void (*drained)(DeviceId device, std::uint64_t generation) noexcept;
    /// The shutdown of the device has ended as Abandoned: see ShutdownListener.
    void (*abandoned)(DeviceId device) noexcept;
  };

  /// Counts one call, from the moment when the client makes it until it has run or was destroyed unrun.
  class Call {
   public:
    explicit Call(PendingCollectives& pending) noexcept : pending_(&pending) {
      pending.submitted_.fetch_add(1, std::memory_order_seq_cst);
    }
    /// Counts the remainder of a call that is running now and will be finished later. Device thread only.
    [[nodiscard]] static Call continuation(PendingCollectives& pending) noexcept {
      pending.ended_.fetch_sub(1, std::memory_order_seq_cst);
      return {pending, Running()};
    }
    Call(Call&& other) noexcept : pending_(std::exchange(other.pending_, nullptr)) {}
    Call& operator=(Call&&) = delete;
    ~Call() {
      if (pending_ != nullptr) pending_->end();
    }

   private:
    struct Running {};
    Call(PendingCollectives& pending, Running) noexcept : pending_(&pending) {}

    PendingCollectives* pending_;
  };

  [[nodiscard]] static PendingCollectives& for_device(DeviceId device);
  /// Replaces the previous listener. `drained` is also called for devices that were closing without pending calls
  /// before this, unless open() has revoked that since; earlier calls of `abandoned` are not repeated. `listener` must
  /// never be destroyed.
  static void set_listener(const Listener& listener) noexcept;

  explicit PendingCollectives(DeviceId device) noexcept : device_(device) {}
  PendingCollectives(const PendingCollectives&) = delete;
  PendingCollectives& operator=(const PendingCollectives&) = delete;

  /// Notes that the server of that generation, which is not 0, is in service. Idempotent.
  void open(std::uint64_t generation) noexcept;
  /// Notes that the device is closing: calls of its clients are refused from now on.
  void close() noexcept;

 private:
  // All operations here are seq_cst. The thread that ends the last call and the thread that calls close() each store,
  // then load what the other one stores; at least one of them sees the other's store.
  void end() noexcept {
    ended_.fetch_add(1, std::memory_order_seq_cst);
    if (closing_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      check_drained();
  }
  void check_drained() const noexcept;

  const DeviceId device_;
  alignas(64) std::atomic<std::uint64_t> submitted_{0};  // incremented by clients
  alignas(64) std::atomic<std::uint64_t> ended_{0};      // incremented mostly by the device thread
  std::atomic<std::uint64_t> closing_{0};                // the generation that is closing; 0: none
  std::atomic<std::uint64_t> generation_{0};
};

}  // namespace cox
