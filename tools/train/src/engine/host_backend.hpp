#pragma once

#include <engine/device.hpp>

#include <coxswain/servers/host/server/host_server.hpp>

#include <cstddef>
#include <optional>
#include <source_location>

namespace train {

/// Host devices. They compute with floats.
struct HostBackend {
  using Client = cox::HostClient;
  using Kernel = cox::HostKernel;
  /// An attention is one kernel.
  static constexpr bool attention_by_head = false;

  /// There is no library for products: all are computed by kernels.
  struct Products {
    Products(const Client& /*client*/, Precision /*precision*/) {}
    [[nodiscard]] static bool multiply(const Client& /*client*/, const cox::Handle& /*out*/, const cox::Handle& /*a*/,
                                       const cox::Handle& /*b*/, const cox::Handle* /*bias*/, const Product& /*shape*/,
                                       std::source_location /*site*/) {
      return false;
    }
  };

  [[nodiscard]] static std::optional<Kernel> make(const KernelSource& source, Precision /*precision*/) {
    if (source.host == nullptr) return std::nullopt;
    return Kernel(source.name, cox::CubeDim::single(), source.buffers, source.host);
  }
  /// A host kernel does all its work in one cube.
  [[nodiscard]] static cox::CubeCount grid(const CudaForm& /*form*/, const Units& /*units*/, Precision /*precision*/) {
    return cox::CubeCount::single();
  }
  [[nodiscard]] static std::size_t row_chunks(std::size_t /*rows*/) { return 1; }
};

}  // namespace train
