#pragma once

#include <kernels/kernel_list.hpp>

#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <utility>
#include <vector>

namespace train {

/// What the engine needs to know about a kind of device: its client, and how a kernel is made from its source. For GPUs
/// a CudaBackend would stand here, with CudaClient, CudaKernel::from_source(source.name, ..., source.cuda), and a grid
/// that covers `units` work items; the engine itself stays as it is.
struct HostBackend {
  using Client = cox::HostClient;
  using Kernel = cox::HostKernel;

  [[nodiscard]] static Kernel make(const KernelSource& source) {
    return {source.name, cox::CubeDim::single(), source.buffers, source.host};
  }
  /// A host kernel does all its work in one cube.
  [[nodiscard]] static cox::CubeCount grid(std::size_t /*units*/) { return cox::CubeCount::single(); }
};

/// A device with the kernels of the engine. Copies share the kernels.
template <class Backend>
class Device {
 public:
  using Client = typename Backend::Client;

  explicit Device(Client client) : client_(std::move(client)) {
    for (const KernelSource& source : kernel_sources()) kernels_.push_back(Backend::make(source));
  }

  [[nodiscard]] const Client& client() const { return client_; }

  /// Queues one kernel on the stream of the calling thread. `units`: number of independent work items.
  void launch(KernelId kernel, std::size_t units, cox::KernelArguments arguments,
              std::source_location site = std::source_location::current()) const {
    client_.launch(kernels_[static_cast<std::size_t>(kernel)], Backend::grid(units), std::move(arguments),
                   cox::ExecutionMode::Checked, site);
  }

  /// New memory for that many floats, with undefined contents.
  [[nodiscard]] cox::Handle floats(std::size_t count) const { return client_.empty(count * sizeof(float)); }

 private:
  Client client_;
  std::vector<typename Backend::Kernel> kernels_;
};

/// The arguments of a launch, in the words of the engine. The order of buffers and scalars is that of the host
/// function.
class Launch {
 public:
  /// A buffer that the kernel writes as a whole, without reading it first.
  Launch&& out(const cox::Handle& memory) && { return std::move(*this).add(memory, cox::Access::Overwrite); }
  /// A buffer that the kernel only reads.
  Launch&& in(const cox::Handle& memory) && { return std::move(*this).add(memory, cox::Access::Read); }
  /// A buffer that the kernel reads and writes.
  Launch&& inout(const cox::Handle& memory) && { return std::move(*this).add(memory, cox::Access::Write); }
  /// inout() if `accumulate`, else out().
  Launch&& sum(const cox::Handle& memory, bool accumulate) && {
    return std::move(*this).add(memory, accumulate ? cox::Access::Write : cox::Access::Overwrite);
  }
  Launch&& size(std::size_t value) && {
    arguments_ = std::move(arguments_).with_scalar(static_cast<std::uint32_t>(value));
    return std::move(*this);
  }
  Launch&& flag(bool value) && { return std::move(*this).size(value ? 1 : 0); }
  Launch&& number(float value) && {
    arguments_ = std::move(arguments_).with_scalar(value);
    return std::move(*this);
  }
  operator cox::KernelArguments() && { return std::move(arguments_); }  // NOLINT(google-explicit-constructor)

 private:
  Launch&& add(const cox::Handle& memory, cox::Access access) && {
    arguments_ = std::move(arguments_).with_buffer(memory, access);
    return std::move(*this);
  }

  cox::KernelArguments arguments_;
};

}  // namespace train
