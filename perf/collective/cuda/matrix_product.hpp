#pragma once

#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <cstddef>
#include <vector>

namespace cox::perf {

/// Products of square matrices of f32 on a GPU, by a kernel that keeps all multiprocessors busy. On a stream of their
/// own, so that they do not wait for other work.
class MatrixProduct {
 public:
  /// `rows`: a multiple of 128. Blocks while the kernel is compiled.
  MatrixProduct(DeviceId device, std::size_t rows);

  /// Launches one; does not block.
  void launch() const;
  /// Blocks until all have completed.
  void wait() const { client_.sync().get(); }

 private:
  std::size_t rows_;
  CudaClient client_;
  CudaKernel kernel_;
  Handle left_;
  Handle right_;
  Handle result_;
};

}  // namespace cox::perf
