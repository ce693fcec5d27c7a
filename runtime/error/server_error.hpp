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

/// A server could not do what was asked, or earlier queued work of the stream failed.
class ServerError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Generic,
    Validation,   ///< The request makes no sense; nothing was queued.
    Profile,      ///< cause() is a ProfileError.
    Io,           ///< cause() is an IoError.
    Unhealthy,    ///< Work queued earlier on the stream failed; errors() has all of it, first cause first (L12).
    Unsupported,  ///< Something that it takes is not there: a driver, or a function of one.
    Graph,        ///< A call of a graph capture that is out of order; nothing has changed.
  };

  ServerError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
              std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  /// The failures that work queued on a stream left behind, in the order they happened. cause() is the first.
  /// `dropped` says how many more there were than are kept. Precondition: `errors` is not empty.
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
  /// Unhealthy in a server's own words. cause() is the first. Precondition: `errors` is not empty.
  ServerError(const std::string& what, std::vector<std::exception_ptr> errors, std::source_location site)
      : Error(what, site, errors.front()), kind_(Kind::Unhealthy), errors_(std::move(errors)) {}

 private:
  Kind kind_;
  std::vector<std::exception_ptr> errors_;
};

[[nodiscard]] const char* to_string(ServerError::Kind kind) noexcept;

}  // namespace cox
