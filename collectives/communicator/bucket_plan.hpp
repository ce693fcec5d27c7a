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
  /// The buckets own the memory of the gradients: one allocation for each bucket, reduced as one tensor, of which each
  /// gradient is a view (GradientBuckets::gradient). A bucket then has gradients of one type only; the first bucket of
  /// each type is full at `first_bucket_bytes`. The same as gradient_as_bucket_view of PyTorch.
  bool own_memory = false;
};

/// Assigns gradients to buckets: each bucket is reduced as one operation. Buckets are filled from the last gradient to
/// the first, because the backward pass computes them in that order (Li et al., PyTorch Distributed, VLDB 2020, section
/// 4.2.3), and ordered by their last member: the order in which they become complete. The plan is the same on every
/// rank that has the same model.
class BucketPlan {
 public:
  /// Views of gradients start at a multiple of this many bytes, as memory of cudaMalloc does: kernels and libraries
  /// that require aligned pointers (16 bytes for vector loads, up to 256 for cuBLASLt) work on views as on allocations.
  static constexpr std::size_t view_alignment = 256;

  BucketPlan(std::span<const Gradient> gradients, const BucketOptions& options);

  [[nodiscard]] std::size_t buckets() const noexcept { return members_.size(); }
  /// The gradients of a bucket, in the order in which they are expected.
  [[nodiscard]] std::span<const std::size_t> members(std::size_t bucket) const { return members_[bucket]; }
  [[nodiscard]] std::size_t bucket_of(std::size_t gradient) const { return bucket_of_[gradient]; }

  // The memory of buckets with own_memory, in bytes
  // ---------------------------------------------------------------------------------------------------------------

  /// Where the gradient starts in the memory of its bucket.
  [[nodiscard]] std::size_t offset_of(std::size_t gradient) const { return offset_of_[gradient]; }
  /// The memory of the bucket, which includes the padding between gradients.
  [[nodiscard]] std::size_t bucket_size(std::size_t bucket) const { return bucket_size_[bucket]; }

 private:
  void assign(std::span<const Gradient> gradients, const BucketOptions& options);
  void order_by_last_member();
  void place(std::span<const Gradient> gradients);

  std::vector<std::vector<std::size_t>> members_;
  std::vector<std::size_t> bucket_of_;    // by gradient
  std::vector<std::size_t> offset_of_;    // by gradient
  std::vector<std::size_t> bucket_size_;  // by bucket
};

}  // namespace cox
