#pragma once

#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <exception>
#include <mutex>

namespace cox::detail {

/// A read that was issued behind a collective under way, and may turn out to have read poisoned memory. Any thread.
class LoggedRead final : public LoggedOperation {
 public:
  /// When the device has come there: the IoError Poisoned; null: what was read is good.
  [[nodiscard]] std::exception_ptr refusal() const noexcept {
    const std::lock_guard lock(mutex_);
    return refusal_;
  }

 private:
  void on_refused(const std::exception_ptr& refusal) noexcept override {
    const std::lock_guard lock(mutex_);
    refusal_ = refusal;
  }

  mutable std::mutex mutex_;
  std::exception_ptr refusal_;  // guarded by mutex_
};

}  // namespace cox::detail
