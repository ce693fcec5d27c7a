#pragma once

#include <coxswain/runtime/trace/trace.hpp>
#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/compile/cuda_kernel_options.hpp>
#include <coxswain/servers/cuda/compile/loaded_kernel.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cox::detail {

/// The part of a CudaKernel that all its copies share.
class KernelDefinition {
 public:
  struct Source {
    std::string text;
  };
  struct Image {
    std::vector<std::byte> bytes;  ///< ends with a 0, for PTX text
  };
  using Resolver = std::function<void*()>;
  using Origin = std::variant<Source, Image, Resolver>;

  KernelDefinition(std::string name, Origin origin, CudaKernelOptions options)
      : name_(std::move(name)),
        label_(trace::intern(name_)),
        origin_(std::move(origin)),
        options_(std::move(options)) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The name, with static storage.
  [[nodiscard]] const char* label() const noexcept { return label_; }
  [[nodiscard]] const CudaKernelOptions& options() const noexcept { return options_; }

  /// See CudaKernel.
  void precompile(ComputeCapability device) const;
  void prepare(std::uint16_t device_index) const noexcept;
  [[nodiscard]] const LoadedKernel* loaded(std::uint16_t device_index) const noexcept;

  /// Devices of a higher index are not supported.
  static constexpr std::size_t max_devices = 64;

 private:
  [[nodiscard]] KernelSource source() const;
  void load(const CudaContext& context, LoadedKernel& into) const;
  [[nodiscard]] CUfunction find_function(const CudaContext& context) const;

  std::string name_;
  const char* label_;
  Origin origin_;
  CudaKernelOptions options_;

  // The release store in prepare(), under mutex_, pairs with the acquire load in loaded(): a thread that sees the
  // pointer sees the kernel.
  mutable std::array<std::atomic<const LoadedKernel*>, max_devices> loaded_{};
  mutable std::mutex mutex_;                                       // held while a kernel is compiled and loaded
  mutable std::vector<std::unique_ptr<const LoadedKernel>> kept_;  // guarded by mutex_; also those of closed contexts
};

}  // namespace cox::detail
