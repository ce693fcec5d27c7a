#pragma once

#include <cuda_kernels_on_cpu.hpp>
#include <engine/host_backend.hpp>

#include <cstddef>
#include <optional>

namespace train {

/// A host device that runs the CUDA kernels: a cube is a block. Both types of activations.
struct EmulatedBackend {
  using Client = cox::HostClient;
  using Kernel = cox::HostKernel;
  using Products = HostBackend::Products;
  static constexpr bool attention_by_head = true;

  [[nodiscard]] static std::optional<Kernel> make(const KernelSource& source, Precision precision) {
    if (source.cuda.source == nullptr) return std::nullopt;
    const bool bfloat16 = precision == Precision::Bfloat16;
    return Kernel(source.name, cox::CubeDim::single(), source.buffers,
                  [name = source.name, bfloat16, threads = source.cuda.threads](const cox::KernelContext& context) {
                    on_cpu::run_block(name, bfloat16, threads, context);
                  });
  }
  [[nodiscard]] static cox::CubeCount grid(const CudaForm& form, const Units& units, Precision precision) {
    return cox::CubeCount::of_1d(cuda_blocks(form, units, precision == Precision::Bfloat16));
  }
  /// More than one, so that the second stage has something to add.
  [[nodiscard]] static std::size_t row_chunks(std::size_t rows) { return rows < 3 ? 1 : 3; }
};

}  // namespace train
