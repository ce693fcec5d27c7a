#pragma once

#include <exception>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace cox {

/// Base of every exception the library throws. `what()` is one line: what failed, on which device, with figures.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::source_location site = std::source_location::current(),
                 std::exception_ptr cause = nullptr)
      : std::runtime_error(what), site_(site), cause_(std::move(cause)) {}

  /// Where in the caller's source the failing call was made, as far as it is known.
  [[nodiscard]] const std::source_location& site() const noexcept { return site_; }

  /// What made this fail, or nullptr. May itself be an Error with a cause.
  [[nodiscard]] const std::exception_ptr& cause() const noexcept { return cause_; }

 private:
  std::source_location site_;
  std::exception_ptr cause_;
};

}  // namespace cox
