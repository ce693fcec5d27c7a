#pragma once

#include <cuda/cublaslt.hpp>
#include <engine/device.hpp>

#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>

namespace train {

/// Products of matrices on one GPU by cuBLASLt. The algorithm of a shape is what the library's heuristic proposes at
/// its first product, and is kept: the same shape is computed in the same order, run after run. One thread.
class MatrixProducts {
 public:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

  MatrixProducts(const cox::CudaClient& client, Precision precision);

  /// Queues out = a b, with `bias` [n] added to each row unless it is null. Returns false if there is no cuBLASLt or it
  /// has no algorithm for this shape; the product must then be computed by other means. The first product of a shape
  /// blocks as ComputeClient::call_quiet does, because cuBLASLt loads code; it must not be captured. If it returns
  /// false, it has queued an operation that counts as one that writes `out`, but writes nothing; later ones queue
  /// nothing. Other failures of cuBLASLt are those of the operation.
  [[nodiscard]] bool multiply(const cox::CudaClient& client, const cox::Handle& out, const cox::Handle& a,
                              const cox::Handle& b, const cox::Handle* bias, const Product& shape,
                              std::source_location site);
  /// Whether cuBLASLt is used. Otherwise `why_not` says why.
  [[nodiscard]] bool usable(std::string& why_not) const;

 private:
  class Plan;
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, bool, bool, bool, bool>;

  Precision precision_;
  std::string why_not_;
  const cublaslt::Functions* lt_;
  std::shared_ptr<cublaslt::Context*> context_;  // null until the first product
  cox::Handle workspace_;
  std::map<Key, std::shared_ptr<Plan>> plans_;
};

}  // namespace train
