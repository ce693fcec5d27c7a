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

/// An allocation, a lookup or a copy of memory failed.
class IoError : public Error {
 public:
  enum class Kind : std::uint8_t {
    BufferTooBig,        ///< The size can never fit: it overflows, or exceeds the device's capacity.
    OutOfMemory,         ///< The device has not enough free memory now; sizes() has the figures.
    OutOfHostMemory,     ///< Host memory could not be allocated.
    UnsupportedStrides,  ///< The strides are not row-major with padding of the last dimension only.
    RankMismatch,        ///< Shape and strides have different ranks.
    ElementSize,         ///< The element size is zero, or the bytes do not fit the elements in size or alignment.
    SizeMismatch,        ///< The number of bytes differs from what the shape needs.
    OutOfBounds,         ///< The shape, offset or range exceeds the memory.
    NotFound,            ///< The handle refers to nothing: empty, moved from, or never initialised.
    AllocationFailed,    ///< The allocation of the handle failed; cause() says why (L12).
    Poisoned,        ///< The operation that should have written the memory failed; cause() is the first failure (L14).
    WrongDevice,     ///< The handle belongs to another device.
    StaleHandle,     ///< The handle was created before a shutdown of its device, which freed its memory.
    FileUnreadable,  ///< The file of lazy bytes cannot be opened or read; cause() is a std::system_error.
    FileTooShort,    ///< The file ends before the range of the lazy bytes ends.
    WouldCopy,       ///< The access needs a copy, which AccessPolicy::ZeroCopy does not allow.
    InvalidPointer,  ///< The pointer of foreign memory is null, or is not memory of a device now.
    Misaligned,      ///< The pointer of foreign memory is not aligned as the device needs it.
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
  /// `report`, if not empty, is appended; brief() leaves it out.
  [[nodiscard]] static IoError out_of_memory(const Location& location, Sizes sizes, std::source_location site,
                                             const std::string& report = {});
  /// The request exceeds the whole capacity, so that neither waiting nor freeing memory helps.
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
