#pragma once

#include <exception>
#include <memory>

namespace cox::detail {

/// Held with an error until the caller has it. Destroyed without delivered(), it returns the error to where it came
/// from, so that a dropped future loses nothing (L12). Any thread.
class ErrorReceipt {
 public:
  ErrorReceipt() = default;
  ErrorReceipt(const ErrorReceipt&) = delete;
  ErrorReceipt& operator=(const ErrorReceipt&) = delete;
  virtual ~ErrorReceipt() = default;

  /// The caller has the error.
  virtual void delivered() noexcept = 0;
};

/// An error that a future is to deliver. What makes a future's result may throw it.
struct TakenError {
  std::exception_ptr error;
  std::shared_ptr<ErrorReceipt> receipt = nullptr;  ///< null: nothing is returned if the error is not delivered

  explicit operator bool() const noexcept { return error != nullptr; }
};

/// In a catch block: the current exception as a TakenError, with its receipt if it is one.
[[nodiscard]] inline TakenError current_error() noexcept {
  try {
    throw;
  } catch (const TakenError& taken) {
    return taken;
  } catch (...) {
    return {std::current_exception()};
  }
}

}  // namespace cox::detail
