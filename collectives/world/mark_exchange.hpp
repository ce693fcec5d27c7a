#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/nccl/nccl_exchange.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace cox::detail::world {

/// The messages about NCCL's communicators between this process and the others, by way of the leader. Any thread.
class MarkExchange final : public NcclExchange {
 public:
  /// `send` sends a message to the leader. It must neither throw nor block.
  explicit MarkExchange(std::function<void(Message)> send) : send_(std::move(send)) {}

  void share_plan(const SharedCommunicator& communicator, std::span<const std::byte> plan) override;
  void mark(const SharedSequence& sequence, std::uint64_t operation, const std::exception_ptr& why,
            UniqueFunction<void()> noted) noexcept override;

  /// Handles a Share, Mark or MarkNoted of the leader. Returns false for other messages. Throws std::bad_alloc.
  [[nodiscard]] bool handle(const Message& message);
  /// The world is lost: no process will note anything any more. Later marks are noted at once.
  void lose_all() noexcept;
  /// Blocks until all marks have been noted, or the deadline.
  void wait_until_noted(std::chrono::steady_clock::time_point deadline);
  /// Whether a mark has not been noted by all.
  [[nodiscard]] bool is_pending() const noexcept {
    const std::lock_guard lock(mutex_);
    return !pending_.empty();
  }

 private:
  const std::function<void(Message)> send_;
  mutable std::mutex mutex_;
  std::condition_variable noted_;
  std::map<std::uint64_t, UniqueFunction<void()>> pending_;  // by id; guarded by mutex_, as all below
  std::uint64_t last_ = 0;
  bool is_lost_ = false;
};

}  // namespace cox::detail::world
