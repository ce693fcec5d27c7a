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
  /// A bucket with this many bytes or more is full. With small buckets reduction starts earlier, with large buckets
  /// there are fewer operations. The default is that of PyTorch's DistributedDataParallel.
  std::size_t bucket_bytes = std::size_t{25} << 20U;
  /// Bytes from which on the first bucket is full. It is smaller, because no reduction starts before it is complete.
  std::size_t first_bucket_bytes = std::size_t{1} << 20U;
};

/// Assigns gradients to buckets: each bucket is reduced as one group. Buckets are filled from the last gradient to the
/// first, because the backward pass computes them in that order (Li et al., PyTorch Distributed, VLDB 2020, section
/// 4.2.3). The plan is the same on every rank that has the same model.
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
