#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace cox {

/// Counts the queued calls of a device that may submit collectives: collectives, transfers and replays. When the device
/// is closing and none is left, its rank has submitted its last operation, whatever else is queued on its thread, so
/// the other ranks need not wait for the end of its shutdown (L16). One per device, never destroyed. Any thread.
class PendingCollectives {
 public:
  struct Listener {
    /// The server of that generation is closing and has no such calls left. At least once per shutdown, possibly after
    /// its end. On the thread that calls shutdown(), or the one on which the last call ended.
    void (*drained)(DeviceId device, std::uint64_t generation) noexcept;
    /// The shutdown of the device has ended as Abandoned: see ShutdownListener.
    void (*abandoned)(DeviceId device) noexcept;
  };

  /// From the client's call until it has run, or was destroyed unrun.
  class Call {
   public:
    explicit Call(PendingCollectives& pending) noexcept : pending_(&pending) {
      pending.submitted_.fetch_add(1, std::memory_order_seq_cst);
    }
    /// For the rest of a call that is running now and will be done later. Device thread.
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
  /// Replaces the former one. Told also of what has happened before, if it has not been taken back by open().
  /// `listener` lives for ever.
  static void set_listener(const Listener& listener) noexcept;

  explicit PendingCollectives(DeviceId device) noexcept : device_(device) {}
  PendingCollectives(const PendingCollectives&) = delete;
  PendingCollectives& operator=(const PendingCollectives&) = delete;

  /// A server of that generation, which is not 0, is in service. Idempotent.
  void open(std::uint64_t generation) noexcept;
  /// Its clients' calls are refused from now on.
  void close() noexcept;

 private:
  // seq_cst, as all here: of the last call that ends and the thread that closes one at least sees the other.
  void end() noexcept {
    ended_.fetch_add(1, std::memory_order_seq_cst);
    if (closing_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      check_drained();
  }
  void check_drained() const noexcept;

  const DeviceId device_;
  alignas(64) std::atomic<std::uint64_t> submitted_{0};  // by clients
  alignas(64) std::atomic<std::uint64_t> ended_{0};      // by the device thread, mostly
  std::atomic<std::uint64_t> closing_{0};                // the generation that is; 0: none
  std::atomic<std::uint64_t> generation_{0};
};

}  // namespace cox
