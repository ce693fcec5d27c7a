#pragma once

#include <exception>
#include <memory>

namespace cox::detail {

/// Accompanies an error until the caller has received it. If it is destroyed before delivered() was called, it returns
/// the error to its stream, so that dropping a future loses no error (L12). Any thread.
class ErrorReceipt {
 public:
  ErrorReceipt() = default;
  ErrorReceipt(const ErrorReceipt&) = delete;
  ErrorReceipt& operator=(const ErrorReceipt&) = delete;
  virtual ~ErrorReceipt() = default;

  /// The caller has received the error.
  virtual void delivered() noexcept = 0;
};

/// An error that a future is to deliver. The function that makes the result of a future may throw it.
struct TakenError {
  std::exception_ptr error;
  std::shared_ptr<ErrorReceipt> receipt = nullptr;  ///< null: an undelivered error is not returned to a stream

  explicit operator bool() const noexcept { return error != nullptr; }
};

/// Call it in a catch block. Returns the current exception as a TakenError; a thrown TakenError keeps its receipt.
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
