#pragma once

#include <coxswain/runtime/tensor/element_type.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace cox {

/// One gradient of a model.
struct Gradient {
  std::size_t bytes = 0;
  ElementType type = ElementType::F32;
};

struct BucketOptions {
  /// Bytes from which on a bucket is full. Small buckets start early and cost one operation each, large ones the other
  /// way round. The default is that of PyTorch's DistributedDataParallel.
  std::size_t bucket_bytes = std::size_t{25} << 20U;
  /// Of the first bucket, which keeps everything else waiting.
  std::size_t first_bucket_bytes = std::size_t{1} << 20U;
};

/// Which gradients are reduced together: from the last to the first, since backward propagation makes them in that
/// order (Li et al., PyTorch Distributed, VLDB 2020, section 4.2.3). The same on every rank that has the same model.
class BucketPlan {
 public:
  BucketPlan(std::span<const Gradient> gradients, const BucketOptions& options);

  [[nodiscard]] std::size_t buckets() const noexcept { return members_.size(); }
  /// The gradients of a bucket, in the order in which they are expected.
  [[nodiscard]] std::span<const std::size_t> members(std::size_t bucket) const { return members_[bucket]; }
  [[nodiscard]] std::size_t bucket_of(std::size_t gradient) const { return bucket_of_[gradient]; }

 private:
  std::vector<std::vector<std::size_t>> members_;
  std::vector<std::size_t> bucket_of_;  // by gradient
};

}  // namespace cox
