#pragma once

#include <cstddef>
#include <exception>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace cox {

/// Base of every exception that the library throws. `what()` is one line: what failed, on which device, with figures.
/// It ends with the text of the cause, if there is one. error_chain() prints each level on a line of its own;
/// find_cause() finds a cause by its type.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::source_location site = std::source_location::current(),
                 std::exception_ptr cause = nullptr)
      : std::runtime_error(what), site_(site), cause_(std::move(cause)) {}

  /// The text that an error with this one as its cause includes: what(), unless a derived class leaves details out.
  [[nodiscard]] virtual std::string brief() const { return what(); }

  /// The source line of the call that failed. If it is not known, line() is 0.
  [[nodiscard]] const std::source_location& site() const noexcept { return site_; }

  /// The error that caused this one, or nullptr. May itself be an Error with a cause.
  [[nodiscard]] const std::exception_ptr& cause() const noexcept { return cause_; }

  /// All causes of this error, the first one first: cause() alone, unless a derived class keeps more. Valid as long as
  /// this error.
  [[nodiscard]] virtual std::span<const std::exception_ptr> causes() const noexcept {
    return {&cause_, cause_ == nullptr ? std::size_t{0} : std::size_t{1}};
  }

 private:
  std::source_location site_;
  std::exception_ptr cause_;
};

}  // namespace cox
