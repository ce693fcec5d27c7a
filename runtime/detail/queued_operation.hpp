#pragma once

#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/device_handle/wait_graph.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace cox::detail {

/// An operation between its submission and the moment when its device thread takes it up. Until then, whoever waits for
/// it waits for that thread; so a device thread that is waited for by it must not (L10).
class QueuedOperation {
 public:
  /// Before any other thread knows of the operation.
  void queued_at(std::shared_ptr<WaitNode> device) noexcept { device_ = std::move(device); }

  /// The device thread has taken it up, or nobody ever will. Any thread, any number of times.
  void begin() noexcept {
    const std::lock_guard lock(mutex_);
    device_.reset();
    if (waiting_ != nullptr) waiting_->answered();
  }

  /// The calling thread waits for the operation while this lives. Throws CallError WouldDeadlock. Costs nothing on a
  /// client thread.
  class Wait {
   public:
    explicit Wait(QueuedOperation& operation) : operation_(operation) {
      if (HeldNode::any()) [[unlikely]]
        announce();
    }
    ~Wait() {
      if (!scope_) return;
      const std::lock_guard lock(operation_.mutex_);
      operation_.waiting_ = nullptr;
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    void announce() {
      const std::lock_guard lock(operation_.mutex_);
      if (operation_.device_ == nullptr) return;
      scope_.emplace(*operation_.device_);
      if (scope_->ring()) {
        scope_.reset();
        throw CallError(CallError::Kind::WouldDeadlock,
                        "wait refused: would_deadlock: the operation is queued at a device thread that waits for the "
                        "calling thread, or is the calling thread",
                        std::source_location());
      }
      device_ = operation_.device_;
      operation_.waiting_ = &*scope_;
    }

    QueuedOperation& operation_;
    std::shared_ptr<WaitNode> device_;  // outlives the scope
    std::optional<WaitScope> scope_;
  };

 private:
  std::mutex mutex_;
  std::shared_ptr<WaitNode> device_;  // null once the operation has been taken up
  WaitScope* waiting_ = nullptr;
};

}  // namespace cox::detail
