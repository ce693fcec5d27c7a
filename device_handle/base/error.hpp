#pragma once

#include <cstddef>
#include <exception>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace cox {

/// Base of every exception the library throws. `what()` is one line: what failed, on which device, with figures; it
/// ends with the text of the cause, if there is one. To print each level on a line of its own, see error_chain();
/// to find a cause by its type, find_cause().
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::source_location site = std::source_location::current(),
                 std::exception_ptr cause = nullptr)
      : std::runtime_error(what), site_(site), cause_(std::move(cause)) {}

  /// What an error that has this one as its cause says of it: what(), unless a derived class leaves details out.
  [[nodiscard]] virtual std::string brief() const { return what(); }

  /// The line of the caller's source that made the failing call. Where it is not known, line() is 0.
  [[nodiscard]] const std::source_location& site() const noexcept { return site_; }

  /// What made this fail, or nullptr. May itself be an Error with a cause.
  [[nodiscard]] const std::exception_ptr& cause() const noexcept { return cause_; }

  /// All that made this fail, first cause first: cause() alone, unless a derived class keeps more. Valid as long as
  /// this error.
  [[nodiscard]] virtual std::span<const std::exception_ptr> causes() const noexcept {
    return {&cause_, cause_ == nullptr ? std::size_t{0} : std::size_t{1}};
  }

 private:
  std::source_location site_;
  std::exception_ptr cause_;
};

}  // namespace cox
