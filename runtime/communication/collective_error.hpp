#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>

namespace cox {

/// Devices could not communicate as asked.
class CollectiveError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Validation,     ///< The request makes no sense: a device twice, mixed types, a dtype that cannot be
                    ///< reduced.
    Mismatch,       ///< Two ranks asked for different things; what() names both calls.
    RankFailed,     ///< A rank could not take part; what() names it, cause() says why. The communicator stays usable.
    Timeout,        ///< Ranks did not arrive by the deadline; what() names them.
    WouldDeadlock,  ///< Operations wait for each other in a ring; what() names them.
    Aborted,        ///< The communicator was given up while the operation was under way; cause() says why.
    Unsupported,    ///< These devices, or this kind of handle, cannot communicate.
    Backend,        ///< The communication library failed; what() has its code and text.
  };

  CollectiveError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
                  std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

}  // namespace cox
