#pragma once

#include <coxswain/runtime/handle/biased_shared_ptr.hpp>
#include <coxswain/runtime/launch/cube_dim.hpp>
#include <coxswain/servers/host/kernel/kernel_context.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

namespace cox {

/// A kernel of the host server: a callable that runs once for each cube, one cube after the other, on a thread of the
/// device. Copying is inexpensive: copies share the callable, so launches on different streams may call it at the same
/// time. An exception from it fails the launch: a LaunchError keeps its kind, any other exception becomes LaunchError
/// KernelFailed.
class HostKernel {
 public:
  using Function = std::function<void(const KernelContext&)>;

  /// `buffers`: the number of buffers that the kernel takes. An empty function is detected at launch (LaunchError
  /// NullFunction).
  HostKernel(std::string name, CubeDim cube_dim, std::size_t buffers, Function function)
      : definition_(detail::BiasedSharedPtr<Definition>::make(
            Definition{std::move(name), cube_dim, buffers, std::move(function)})) {}

  [[nodiscard]] const std::string& name() const noexcept { return definition_->name; }
  [[nodiscard]] const CubeDim& cube_dim() const noexcept { return definition_->cube_dim; }
  [[nodiscard]] std::size_t buffer_count() const noexcept { return definition_->buffers; }
  [[nodiscard]] const Function& function() const noexcept { return definition_->function; }

 private:
  struct Definition {
    std::string name;
    CubeDim cube_dim;
    std::size_t buffers;
    Function function;
  };
  detail::BiasedSharedPtr<Definition> definition_;
};

}  // namespace cox
