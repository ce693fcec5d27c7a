#pragma once

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/base/location.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <source_location>
#include <string>

namespace cox {

/// Memory could not be had, found, or copied as asked.
class IoError : public Error {
 public:
  enum class Kind : std::uint8_t {
    BufferTooBig,        ///< The size can never fit: it overflows, or is more than the whole device has.
    OutOfMemory,         ///< The device has no room for it now; sizes() has the figures.
    OutOfHostMemory,     ///< The process could not get host memory.
    UnsupportedStrides,  ///< The strides are not row-major with padding of the last dimension only.
    RankMismatch,        ///< Shape and strides have different ranks.
    ElementSize,         ///< The element size is zero, or does not fit the bytes it is to describe.
    SizeMismatch,        ///< The bytes given are not as many as the shape needs.
    OutOfBounds,         ///< The shape, offset or range reaches beyond the memory.
    NotFound,            ///< The handle refers to nothing: empty, moved from, or never initialised.
    AllocationFailed,    ///< The allocation behind the handle failed; cause() says why (L12).
    Poisoned,            ///< What should have written the memory failed; cause() is the first failure (L14).
    WrongDevice,         ///< The handle belongs to another device.
    StaleHandle,         ///< The handle is from before a shutdown of its device: its memory was freed then.
    FileUnreadable,      ///< The file of lazy bytes cannot be opened or read; cause() is a std::system_error.
    FileTooShort,        ///< The file of lazy bytes ends before they do.
    WouldCopy,           ///< The access was to copy nothing, but cannot do without.
  };
  /// The figures of a failed allocation, in bytes.
  struct Sizes {
    std::size_t requested = 0;
    std::size_t in_use = 0;
    std::size_t capacity = 0;
  };

  IoError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
          std::exception_ptr cause = nullptr, std::optional<Sizes> sizes = std::nullopt)
      : Error(what, site, std::move(cause)), kind_(kind), sizes_(sizes) {}

  /// Says "cannot allocate <requested> on <place>: <in use> of <capacity> in use".
  /// `report`, if not empty, follows; brief() leaves it out.
  [[nodiscard]] static IoError out_of_memory(const Location& location, Sizes sizes, std::source_location site,
                                             const std::string& report = {});
  /// The request exceeds the whole capacity, so that no waiting or freeing helps.
  [[nodiscard]] static IoError buffer_too_big(const Location& location, Sizes sizes, std::source_location site);
  [[nodiscard]] static IoError out_of_host_memory(std::size_t bytes,
                                                  std::source_location site = std::source_location::current());

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// what() without the report of the pool's memory.
  [[nodiscard]] std::string brief() const override { return std::string(what()).substr(0, brief_length_); }
  /// Present for OutOfMemory, OutOfHostMemory and BufferTooBig where the figures are known.
  [[nodiscard]] const std::optional<Sizes>& sizes() const noexcept { return sizes_; }

 private:
  Kind kind_;
  std::optional<Sizes> sizes_;
  std::size_t brief_length_ = std::string::npos;
};

[[nodiscard]] const char* to_string(IoError::Kind kind) noexcept;

}  // namespace cox
