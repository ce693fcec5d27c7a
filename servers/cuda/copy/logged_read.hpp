#pragma once

#include <coxswain/servers/cuda/stream/cuda_stream.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace cox::detail {

/// A read that was issued behind a collective under way, and may turn out to have read poisoned memory. Any thread.
class LoggedRead final : public LoggedOperation {
 public:
  /// `sequence`: the read's place among the errors of the stream.
  LoggedRead(std::shared_ptr<CudaStream> stream, std::uint64_t sequence)
      : stream_(std::move(stream)), sequence_(sequence) {}
  /// Nobody has asked for a refusal: the stream has it then (L12).
  ~LoggedRead() {
    if (refusal_ != nullptr && !is_taken_) stream_->fail_at(sequence_, refusal_);
  }

  /// It was not issued, for that reason.
  void refuse(const std::exception_ptr& refusal) noexcept { static_cast<void>(note_refused(refusal)); }
  [[nodiscard]] bool is_refused() const noexcept {
    const std::lock_guard lock(mutex_);
    return refusal_ != nullptr;
  }
  /// When the device has come there: the IoError Poisoned; null: what was read is good.
  [[nodiscard]] std::exception_ptr take_refusal() noexcept {
    const std::lock_guard lock(mutex_);
    is_taken_ = true;
    return refusal_;
  }

 private:
  [[nodiscard]] std::exception_ptr note_refused(const std::exception_ptr& refusal) noexcept override {
    const std::lock_guard lock(mutex_);
    refusal_ = refusal;
    return refusal;
  }
  void tell_refused(const std::exception_ptr&) noexcept override {}  // its future tells it

  const std::shared_ptr<CudaStream> stream_;
  const std::uint64_t sequence_;
  mutable std::mutex mutex_;
  std::exception_ptr refusal_;  // guarded by mutex_
  bool is_taken_ = false;       // guarded by mutex_
};

}  // namespace cox::detail
