#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>

namespace cox {

/// A collective operation or transfer failed, or its arguments were rejected.
class CollectiveError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Validation,     ///< The request is invalid: a device twice, mixed types, an element type that cannot be
                    ///< reduced.
    Mismatch,       ///< The requests of two ranks differ; what() names both calls.
    RankFailed,     ///< A rank could not take part; what() names it, cause() says why. The communicator stays usable.
    Timeout,        ///< Ranks did not arrive by the deadline; what() names them.
    WouldDeadlock,  ///< Operations wait for each other in a cycle; what() names them.
    Aborted,        ///< The communicator was aborted before the operation completed; cause() says why.
    Unsupported,    ///< These devices, or this kind of handle, cannot communicate.
    Backend,        ///< The communication library failed; what() has its error code and text.
    ProcessGone,    ///< A process of the communicator has ended or left its world; what() names it.
    ProcessSilent,  ///< A process of the communicator has not answered for longer than world.silence; what() names it.
    WorldGone,      ///< The process that leads the world has ended or cannot be reached.
  };

  CollectiveError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
                  std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

namespace detail {

/// For an error that calls of several ranks share, and so has no line: a copy of it with the line of one of the calls.
/// Returns `error` itself if it has a line, is no CollectiveError, or no memory is left.
[[nodiscard]] std::exception_ptr with_site(const std::exception_ptr& error, const std::source_location& site) noexcept;

}  // namespace detail

}  // namespace cox
