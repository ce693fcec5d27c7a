#pragma once

#include <cuda/matrix_products.hpp>
#include <engine/device.hpp>

#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>

namespace train {

/// GPUs: CUDA C++ kernels, which NVRTC compiles at their first launch, and products by cuBLASLt.
struct CudaBackend {
  using Client = cox::CudaClient;
  using Kernel = cox::CudaKernel;
  using Products = MatrixProducts;
  static constexpr bool attention_by_head = true;

  [[nodiscard]] static std::optional<Kernel> make(const KernelSource& source, Precision precision) {
    if (source.cuda.source == nullptr) return std::nullopt;
    return Kernel::from_source(source.name, cox::CubeDim::of_1d(source.cuda.threads),
                               cuda_text(source.cuda, precision == Precision::Bfloat16),
                               {.dynamic_shared_memory = source.cuda.shared_memory});
  }
  [[nodiscard]] static cox::CubeCount grid(const CudaForm& form, const Units& units, Precision precision) {
    return cox::CubeCount::of_1d(cuda_blocks(form, units, precision == Precision::Bfloat16));
  }
  /// As many as a GPU can work on at the same time, of at least 32 rows.
  [[nodiscard]] static std::size_t row_chunks(std::size_t rows) { return std::clamp<std::size_t>(rows / 32, 1, 128); }
};

}  // namespace train
