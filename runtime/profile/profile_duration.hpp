#pragma once

#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/profile/profile_ticks.hpp>
#include <coxswain/runtime/profile/timing_method.hpp>

#include <chrono>
#include <utility>

namespace cox {

/// The duration of a profiled piece of work, available when the device has completed it. Move-only. One of get(),
/// async_get() and Profiler::record takes the result, once. Dropping it unread is safe; the failures of the work then
/// stay with the stream.
class ProfileDuration {
 public:
  ProfileDuration(Future<ProfileTicks> ticks, TimingMethod method) noexcept
      : ticks_(std::move(ticks)), method_(method) {}

  [[nodiscard]] TimingMethod timing_method() const noexcept { return method_; }
  /// Whether this has not been moved from and the result has not been taken. All functions below require it.
  [[nodiscard]] bool valid() const noexcept { return ticks_.valid(); }
  /// Whether the result is available; get() then does not block.
  [[nodiscard]] bool ready() const { return ticks_.ready(); }
  /// Blocks until the result is available or the time has elapsed; returns whether it is available. Throws CallError
  /// WouldDeadlock as Future does.
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> time) const {
    return ticks_.wait_for(time);
  }
  /// Blocks until the result is available, and takes it. Throws ProfileError, and also as wait_for.
  ProfileTicks get() { return ticks_.get(); }
  /// Takes the result through any Asio completion token; signature void(std::exception_ptr, ProfileTicks).
  template <class CompletionToken>
  auto async_get(CompletionToken&& token) {
    return ticks_.async_get(std::forward<CompletionToken>(token));
  }

 private:
  Future<ProfileTicks> ticks_;
  TimingMethod method_;
};

}  // namespace cox
