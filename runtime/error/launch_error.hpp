#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <source_location>
#include <string>

namespace cox {

/// A limit of the device that a launch exceeded.
struct ResourceLimit {
  enum class Resource : std::uint8_t { SharedMemory, UnitsPerCube, CubeDim, CubeCount, Buffers };
  Resource resource = Resource::UnitsPerCube;
  std::array<std::uint64_t, 3> requested{};  ///< bytes, units or buffers in [0]; x, y, z for CubeDim and CubeCount
  std::array<std::uint64_t, 3> maximum{};
};

/// A kernel could not be launched, or failed while it ran.
class LaunchError : public Error {
 public:
  enum class Kind : std::uint8_t {
    Compilation,       ///< The kernel does not compile.
    OutOfMemory,       ///< No memory for the launch itself.
    TooManyResources,  ///< The device cannot run such a launch; limit() has the figures.
    Io,                ///< A buffer cannot be used; cause() is the IoError.
    NullFunction,      ///< There is no function to run.
    ArgumentCount,     ///< More or fewer buffers than the kernel takes.
    ArgumentType,      ///< A buffer or scalar has another type than the kernel expects.
    OutOfBounds,       ///< The kernel accessed memory beyond a buffer (checked mode).
    KernelFailed,      ///< The kernel threw; cause() is what it threw.
    Unknown,
  };

  LaunchError(Kind kind, const std::string& what, std::source_location site = std::source_location::current(),
              std::exception_ptr cause = nullptr, std::optional<ResourceLimit> limit = std::nullopt)
      : Error(what, site, std::move(cause)), kind_(kind), limit_(limit) {}

  /// Says "<what> exceeds <the limit>: requested (…), maximum (…)".
  [[nodiscard]] static LaunchError too_many_resources(const std::string& what, const ResourceLimit& limit,
                                                      std::source_location site);

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// Present for TooManyResources, unless the driver refused the launch: the driver does not report which limit was
  /// exceeded.
  [[nodiscard]] const std::optional<ResourceLimit>& limit() const noexcept { return limit_; }

 private:
  Kind kind_;
  std::optional<ResourceLimit> limit_;
};

[[nodiscard]] const char* to_string(LaunchError::Kind kind) noexcept;
[[nodiscard]] const char* to_string(ResourceLimit::Resource resource) noexcept;

}  // namespace cox
