#pragma once

#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/profile/profile_ticks.hpp>
#include <coxswain/runtime/profile/timing_method.hpp>

#include <chrono>
#include <utility>

namespace cox {

/// How long a profiled piece of work took, known once the device is done with it. Move-only. One of get(), async_get()
/// and Profiler::record takes the result, once; dropping it unread is safe, and leaves
/// its failures to the stream.
class ProfileDuration {
 public:
  ProfileDuration(Future<ProfileTicks> ticks, TimingMethod method) noexcept
      : ticks_(std::move(ticks)), method_(method) {}

  [[nodiscard]] TimingMethod timing_method() const noexcept { return method_; }
  /// Not moved from, result not taken. All below require it.
  [[nodiscard]] bool valid() const noexcept { return ticks_.valid(); }
  /// The result is there; get() will not block.
  [[nodiscard]] bool ready() const { return ticks_.ready(); }
  /// Blocks until the result is there or the time is over; returns whether it is there. Throws CallError WouldDeadlock
  /// as Future does.
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> time) const {
    return ticks_.wait_for(time);
  }
  /// Blocks until the result is there, and takes it. Throws ProfileError, and as wait_for.
  ProfileTicks get() { return ticks_.get(); }
  /// Takes the result by any Asio completion token; signature void(std::exception_ptr, ProfileTicks).
  template <class CompletionToken>
  auto async_get(CompletionToken&& token) {
    return ticks_.async_get(std::forward<CompletionToken>(token));
  }

 private:
  Future<ProfileTicks> ticks_;
  TimingMethod method_;
};

}  // namespace cox
