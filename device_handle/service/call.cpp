#include <coxswain/device_handle/service/call.hpp>

#include <string>

namespace cox::detail {

namespace {

CallError make_call_error(CallError::Kind kind, DeviceId device, const CallOptions* options) {
  std::string what = std::string("call not carried out: ") + to_string(kind) + ": ";
  switch (kind) {
    case CallError::Kind::Cancelled: what += "its stop_token was triggered before it started"; break;
    case CallError::Kind::Expired: what += "its deadline passed before it started"; break;
    default: what += "the device was shut down before it started"; break;
  }
  what += " on " + device.to_string();
  if (options == nullptr) return {kind, what, std::source_location()};
  if (options->label != nullptr) what += std::string(", ") + options->label;
  what += std::string(" (") + options->site.file_name() + ":" + std::to_string(options->site.line()) + ")";
  return {kind, what, options->site};
}

}  // namespace

std::exception_ptr call_error(CallError::Kind kind, DeviceId device, const CallOptions* options) noexcept {
  try {
    throw make_call_error(kind, device, options);
  } catch (...) {  // or std::bad_alloc, which also completes the call
    return std::current_exception();
  }
}

std::optional<CallError::Kind> find_refusal(const CallOptions& options) noexcept {
  if (options.stop.stop_requested()) return CallError::Kind::Cancelled;
  if (options.deadline && std::chrono::steady_clock::now() >= *options.deadline) return CallError::Kind::Expired;
  return std::nullopt;
}

void throw_would_deadlock(DeviceId device, const char* reason) {
  throw CallError(CallError::Kind::WouldDeadlock,
                  "call refused: would_deadlock: " + device.to_string() + " cannot run the call: " + reason,
                  std::source_location());
}

void throw_service_closed(DeviceId device) {
  throw CallError(CallError::Kind::Closed,
                  "call refused: closed: the service is destroyed, " + device.to_string() + " is being shut down",
                  std::source_location());
}

}  // namespace cox::detail
