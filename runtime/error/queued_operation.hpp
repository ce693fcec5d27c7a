#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace cox::detail {

/// The wait graph edges of a thread that waits for an operation (L10): an edge to the device thread until that thread
/// has begun to process the operation, and an edge to the device's streams until the operation has completed.
class QueuedOperation {
 public:
  explicit QueuedOperation(std::shared_ptr<WaitNode> streams) noexcept : streams_(std::move(streams)) {}

  /// Sets the device thread that the operation is submitted to. Call it before another thread can access the operation.
  void queued_at(std::shared_ptr<WaitNode> device) noexcept { device_ = std::move(device); }

  /// The device thread has begun to process the operation, or never will. Any thread, any number of times.
  void begin() noexcept {
    const std::lock_guard lock(mutex_);
    device_.reset();
    if (waiting_ != nullptr) waiting_->end_wait();
  }

  /// The calling thread waits for the operation during the lifetime of this object. The constructor throws CallError
  /// WouldDeadlock if the wait would close a cycle. Costs nothing on a client thread.
  class Wait {
   public:
    explicit Wait(QueuedOperation& operation) : operation_(operation) {
      if (HeldNode::any_held()) [[unlikely]]
        announce();
    }
    ~Wait() {
      if (!taking_up_) return;
      const std::lock_guard lock(operation_.mutex_);
      operation_.waiting_ = nullptr;
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    void announce() {
      // Held from the first edge on, because another thread may call begin() at any time.
      const std::lock_guard lock(operation_.mutex_);
      if (operation_.streams_ != nullptr) {
        completion_.emplace(*operation_.streams_);
        if (completion_->closes_cycle())
          refuse("the operation is completed by streams that wait for the calling thread, or run on it");
      }
      if (operation_.device_ == nullptr) return;
      device_ = operation_.device_;
      taking_up_.emplace(*device_);
      if (taking_up_->closes_cycle()) {
        taking_up_.reset();
        refuse(
            "the operation is queued at a device thread that waits for the calling thread, or is the calling thread");
      }
      operation_.waiting_ = &*taking_up_;
    }

    [[noreturn]] static void refuse(const char* why) {
      throw CallError(CallError::Kind::WouldDeadlock, std::string("wait refused: would_deadlock: ") + why,
                      std::source_location());
    }

    QueuedOperation& operation_;
    std::shared_ptr<WaitNode> device_;  // must outlive taking_up_, which refers to it
    std::optional<WaitScope> completion_;
    std::optional<WaitScope> taking_up_;
  };

 private:
  std::mutex mutex_;
  const std::shared_ptr<WaitNode> streams_;
  std::shared_ptr<WaitNode> device_;  // null after begin()
  WaitScope* waiting_ = nullptr;
};

}  // namespace cox::detail
