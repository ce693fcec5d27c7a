#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <string>

namespace cox {

/// A call to a device that was not carried out. An exception that the task itself throws is never wrapped in one (law
/// L5).
class CallError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Closed,             ///< The device was shut down, or is being shut down (L4).
    Forked,             ///< The process is a forked child: the device threads exist in the parent only.
    WouldDeadlock,      ///< The calling device thread would wait for itself, directly or through other threads (L10).
    Cancelled,          ///< The call's stop_token was triggered before the task started.
    Expired,            ///< The call's deadline passed before the task started.
    QueueFull,          ///< The queue is at its capacity and its policy is Fail.
    AlreadyRegistered,  ///< insert() was called for a service that the device already has.
    UnknownDevice,      ///< No such device.
  };

  CallError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
            std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

[[nodiscard]] constexpr const char* to_string(CallError::Kind kind) noexcept {
  switch (kind) {
    case CallError::Kind::Closed: return "closed";
    case CallError::Kind::Forked: return "forked";
    case CallError::Kind::WouldDeadlock: return "would_deadlock";
    case CallError::Kind::Cancelled: return "cancelled";
    case CallError::Kind::Expired: return "expired";
    case CallError::Kind::QueueFull: return "queue_full";
    case CallError::Kind::AlreadyRegistered: return "already_registered";
    case CallError::Kind::UnknownDevice: return "unknown_device";
  }
  return "unknown";
}

namespace detail {

/// Rethrows the error that is being handled; if it has no line and `site` has one, with `site`. Only in a catch
/// handler.
[[noreturn, gnu::cold]] inline void rethrow_at(const CallError& error, const std::source_location& site) {
  if (error.site().line() != 0 || site.line() == 0) throw;
  throw CallError(error.kind(), error.what(), site, error.cause());
}

/// Calls `f()`. If it throws a CallError without a line, from below the public calls, the error gets `site`.
template <class F>
decltype(auto) at_site(const std::source_location& site, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const CallError& error) {
    rethrow_at(error, site);
  }
}

}  // namespace detail

}  // namespace cox
