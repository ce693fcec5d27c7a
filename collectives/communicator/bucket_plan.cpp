#include <coxswain/collectives/communicator/bucket_plan.hpp>

namespace cox {

BucketPlan::BucketPlan(std::span<const Gradient> gradients, const BucketOptions& options)
    : bucket_of_(gradients.size()) {
  std::size_t bytes = 0;
  for (std::size_t left = gradients.size(); left != 0; --left) {
    const std::size_t gradient = left - 1;
    const std::size_t full = members_.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
    if (members_.empty() || bytes >= full) {
      members_.emplace_back();
      bytes = 0;
    }
    members_.back().push_back(gradient);
    bucket_of_[gradient] = members_.size() - 1;
    bytes += gradients[gradient].bytes;
  }
}

}  // namespace cox
