#pragma once

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <utility>

namespace cox {

/// Kept memory cannot be opened, given to the supervisor or taken from it. See KeptSet.
class KeptError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Forked,       ///< The process is a fork of the one that opened the connection to the supervisor.
    InUse,        ///< The set is open in this process, or in another one of this supervisor, already.
    Schema,       ///< The supervisor holds the set with another schema, or for other devices. The memory stays held.
    Size,         ///< The supervisor holds that memory with another size. It stays held.
    Limit,        ///< A maximum of the supervisor is reached: of bytes, allocations, sets, or of a length.
    Descriptors,  ///< The supervisor or this process has no file descriptor left.
    Supervisor,   ///< The supervisor does not answer, or not as this version of the library expects.
    Memory,       ///< The memory cannot be created or mapped.
    /// The memory that the supervisor held for a device is gone: its GPU was reset, or has an uncorrectable memory
    /// error. It holds none any more.
    Lost,
    Order,  ///< begin_update or commit out of order, or a device of the set has not been opened.
  };

  KeptError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
            std::exception_ptr cause = nullptr)
      : Error(what, site, std::move(cause)), kind_(kind) {}

  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

[[nodiscard]] const char* to_string(KeptError::Kind kind) noexcept;

/// Order: the record of the set was not changed at that location.
[[nodiscard]] KeptError kept_mark_error(const std::string& set, const Location& location, std::source_location site);

/// Memory: the limit of the device does not allow `bytes` more bytes. Writes the report to the log.
[[nodiscard]] KeptError kept_memory_does_not_fit(const Location& location, std::size_t bytes,
                                                 const MemoryReport& report, std::source_location site);

}  // namespace cox
