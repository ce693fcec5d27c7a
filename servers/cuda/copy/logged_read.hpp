#pragma once

#include <coxswain/servers/cuda/stream/cuda_stream.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace cox::detail {

/// A read that was issued after an in-flight collective and depends on it: it may turn out to have read poisoned
/// memory. Any thread.
class LoggedRead final : public LoggedOperation {
 public:
  /// `sequence`: the read's position among the errors of the stream.
  LoggedRead(std::shared_ptr<CudaStream> stream, std::uint64_t sequence)
      : stream_(std::move(stream)), sequence_(sequence) {}
  /// If no caller has taken the refusal, it joins the errors of the stream (L12).
  ~LoggedRead() {
    if (refusal_ != nullptr && !is_taken_) stream_->fail_at(sequence_, refusal_);
  }

  /// The read was not issued, because of `refusal`.
  void refuse(const std::exception_ptr& refusal) noexcept { static_cast<void>(record_refusal(refusal)); }
  [[nodiscard]] bool is_refused() const noexcept {
    const std::lock_guard lock(mutex_);
    return refusal_ != nullptr;
  }
  /// After the device has reached the read: the IoError Poisoned; null if the bytes read are good.
  [[nodiscard]] std::exception_ptr take_refusal() noexcept {
    const std::lock_guard lock(mutex_);
    is_taken_ = true;
    return refusal_;
  }

 private:
  [[nodiscard]] std::exception_ptr record_refusal(const std::exception_ptr& refusal) noexcept override {
    const std::lock_guard lock(mutex_);
    refusal_ = refusal;
    return refusal;
  }
  void report_refusal(const std::exception_ptr&) noexcept override {}  // the future of the read reports it

  const std::shared_ptr<CudaStream> stream_;
  const std::uint64_t sequence_;
  mutable std::mutex mutex_;
  std::exception_ptr refusal_;  // guarded by mutex_
  bool is_taken_ = false;       // guarded by mutex_
};

}  // namespace cox::detail
