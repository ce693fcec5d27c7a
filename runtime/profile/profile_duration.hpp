#pragma once

#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/base/unique_id.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace cox {

/// Makes ProfilingToken a type of its own.
struct COX_VISIBILITY_DEFAULT ProfileKind{};

/// Identifies one open profile of a stream.
using ProfilingToken = UniqueId<ProfileKind>;

/// Where failures of profiled work are reported. In both cases the duration of the profile fails with the first
/// failure.
enum class ProfileFailures : std::uint8_t {
  OfProfile,  ///< Only by the profile: the stream discards them.
  OfStream,   ///< Also by the stream, as if the work had not been profiled.
};

/// The clock that measured a profile.
enum class TimingMethod : std::uint8_t {
  System,  ///< The host's clock, read when the stream reached the begin and the end.
  Device,  ///< The device's own clock, read by events of the stream.
};

inline constexpr std::array<std::string_view, 2> timing_method_names{"system", "device"};
static_assert(timing_method_names.size() == static_cast<std::size_t>(TimingMethod::Device) + 1);

/// The times at which a profiled piece of work began and ended.
struct ProfileTicks {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;

  [[nodiscard]] std::chrono::nanoseconds duration() const noexcept { return end - begin; }

  friend bool operator==(const ProfileTicks&, const ProfileTicks&) = default;
};

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
