#pragma once

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/base/location.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// A server could not execute a request, or work that was queued earlier on the stream failed.
class ServerError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Generic,
    Validation,   ///< The request is invalid; nothing was queued.
    Profile,      ///< cause() is a ProfileError.
    Io,           ///< cause() is an IoError.
    Unhealthy,    ///< Work queued earlier on the stream failed; errors() has all failures, first cause first (L12).
    Unsupported,  ///< A requirement is missing: a driver, or a function of a driver.
    Graph,        ///< A graph capture call was made out of order; nothing has changed.
  };

  ServerError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
              std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  /// The failures of work queued on a stream, in stream order. cause() is the first. `dropped` is the number of further
  /// failures that were not kept. Precondition: `errors` is not empty.
  [[nodiscard]] static ServerError unhealthy(const Location& location, std::vector<std::exception_ptr> errors,
                                             std::size_t dropped, std::source_location site);

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::vector<std::exception_ptr>& errors() const noexcept { return errors_; }
  /// errors() if there are any, else cause().
  [[nodiscard]] std::span<const std::exception_ptr> causes() const noexcept override {
    if (errors_.empty()) return Error::causes();
    return errors_;
  }

 protected:
  /// Unhealthy with a text of the server's choice. cause() is the first error. Precondition: `errors` is not empty.
  ServerError(const std::string& what, std::vector<std::exception_ptr> errors, std::source_location site)
      : Error(what, site, errors.front()), kind_(Kind::Unhealthy), errors_(std::move(errors)) {}

 private:
  Kind kind_;
  std::vector<std::exception_ptr> errors_;
};

[[nodiscard]] const char* to_string(ServerError::Kind kind) noexcept;

}  // namespace cox
